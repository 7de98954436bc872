"""Reads the GPU code in an object file of nvcc: its PTX, and what the machine code (cubin) of each kernel needs. Needs no tool of
the CUDA toolkit; the code must not be compressed (meson's -Dgpu_compress=false).

A fat binary (section .nv_fatbin) is a sequence of containers: magic, version, header bytes, bytes; then entries: kind (1: PTX,
2: ELF), version, header bytes, bytes, ..., the architecture at byte 28, the bytes before compression at byte 56 (0: not
compressed).
"""
import re
import struct
import subprocess

FATBIN_MAGIC = 0xBA55ED50
PTX, CUBIN = 1, 2
# Attributes in the sections .nv.info and .nv.info.KERNEL of a cubin: format, attribute, size or value.
FORMAT_SIZED = 4
ATTRIBUTE_FRAME_BYTES, ATTRIBUTE_REGISTERS = 0x11, 0x2F


class NotReadable(Exception):
    """An object whose code cannot be read; says why."""


def sections(elf):
    """{name: (contents, info)} of an ELF file of 64 bits; several of one name: the last."""
    if elf[:4] != b"\x7fELF":
        raise NotReadable("not an ELF file")
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    found = {}
    for name, kind, _, _, offset, length, _, info, _, _ in headers:
        start = headers[names][4] + name
        text = elf[start:elf.index(b"\0", start)].decode()
        found[text] = (elf[offset:offset + length] if kind != 8 else b"\0" * length, info)
    return found


def images(path):
    """(kind, architecture as a number such as 90, contents) of each image in an object file."""
    fatbin = sections(path.read_bytes()).get(".nv_fatbin", (b"", 0))[0]
    at = 0
    while at + 16 <= len(fatbin):
        magic, _, header, length = struct.unpack_from("<IHHQ", fatbin, at)
        if magic != FATBIN_MAGIC:
            raise NotReadable(f"{path.name}: a fat binary of another form")
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, header, length = struct.unpack_from("<HHIQ", fatbin, entry)
            arch, = struct.unpack_from("<I", fatbin, entry + 28)
            contents = fatbin[entry + header:entry + header + length]
            if kind == PTX and b".version" not in contents[:64] or kind == CUBIN and contents[:4] != b"\x7fELF":
                raise NotReadable(f"{path.name}: its code is compressed (configure with -Dgpu_compress=false)")
            yield kind, arch, contents
            entry += header + length
        at = end
        while at < len(fatbin) and fatbin[at] == 0:  # alignment
            at += 1


def ptx_text(contents):
    return contents.rstrip(b"\0").decode()


def attributes(info):
    """(attribute, value) of a section .nv.info; of those with a size the bytes."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == FORMAT_SIZED:
            yield attribute, info[at:at + size]
            at += size
        else:
            yield attribute, size


def symbol_names(elf):
    table, strings = sections(elf)[".symtab"][0], sections(elf)[".strtab"][0]
    for at in range(0, len(table), 24):
        name, = struct.unpack_from("<I", table, at)
        yield strings[name:strings.index(b"\0", name)].decode()


def resources(elf):
    """{kernel: {"registers": of a thread, "stack": bytes of a thread}}"""
    parts, names = sections(elf), list(symbol_names(elf))
    kernels = {name.removeprefix(".text."): {"registers": 0, "stack": 0} for name in parts if name.startswith(".text.")}
    for attribute, value in attributes(parts.get(".nv.info", (b"", 0))[0]):
        if attribute in (ATTRIBUTE_REGISTERS, ATTRIBUTE_FRAME_BYTES):
            symbol, number = struct.unpack("<II", value)
            if names[symbol] in kernels:
                kernels[names[symbol]]["registers" if attribute == ATTRIBUTE_REGISTERS else "stack"] = number
    return kernels


def readable_names(mangled):
    """{mangled name: kernel and template arguments, such as GemvKernel<bf16, 1, 2, 4, true>}"""
    mangled = list(mangled)
    done = subprocess.run(["c++filt"], input="\n".join(mangled), text=True, capture_output=True, check=True)
    names = {}
    for name, text in zip(mangled, done.stdout.split("\n")):
        text = re.sub(r"minisgl::(\w+::)*|\(anonymous namespace\)::|^void ", "", text)
        text = re.sub(r"\([\w:]+\)(\d+)", r"\1", text)  # the value of an enumeration
        text = re.sub(r"\(.*$", "", text).replace("__nv_bfloat16", "bf16").replace("__half", "f16")
        names[name] = text.replace("unsigned short", "u16").replace("unsigned int", "u32")
    return names
