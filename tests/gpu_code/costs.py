"""What a kernel costs, counted in its machine code (compute capability 8.0 to 9.0): instructions of 16 bytes, whose lowest
12 bits say what they do.

Counted in the whole kernel and in its main loop, the innermost of those with most products (without products, with most bytes
from global memory): issue slots, products of the tensor cores (HMMA), wavefronts of matrix loads from shared memory (LDSM), copies
to shared memory in the background (LDGSTS), special functions (MUFU), fences (MEMBAR), barriers (BAR), atomics, and bytes that a
lane moves from and to global memory.
"""
import struct

import code_object

BRANCH, EXIT = 0x947, 0x94D
NAMES = {0x23C: "products", 0x83B: "matrix_loads", 0xFAE: "copies", 0x308: "special", 0x908: "special", 0x992: "fences", 0xB1D: "barriers",
         0x9A8: "atomics", 0x98E: "atomics"}
WAIT, STORE = 0x82E, 0x986
GLOBAL = {0x981, 0x986, 0xFAE}  # LDG, STG, LDGSTS
WIDTHS = [1, 1, 2, 2, 4, 8, 16, 16]
# A rise by less is an accident of scheduling.
ISSUE_TOLERANCE = 0.03


def decode(code):
    """(opcode, low 64 bits, high 64 bits) of each instruction."""
    for at in range(0, len(code) - 15, 16):
        low, high = struct.unpack_from("<QQ", code, at)
        yield low & 0xFFF, low, high


def branch_target(index, low, high):
    """Index of the instruction that a branch goes to. The offset, in units of 4 bytes: bits 16 to 23, and from 34 on."""
    upper = (high << 64 | low) >> 34 & (1 << 40) - 1
    if upper >> 39:
        upper -= 1 << 40
    return index + 1 + (upper * 256 + (low >> 16 & 255)) // 4


def count(instructions):
    figures = {"issue": len(instructions), "products": 0, "matrix_loads": 0, "copies": 0, "special": 0, "fences": 0, "barriers": 0,
               "atomics": 0, "bytes": 0}
    for opcode, _, high in instructions:
        if opcode in NAMES:
            figures[NAMES[opcode]] += 1 << (high >> 8 & 3) if opcode == 0x83B else 1
        if opcode in GLOBAL:
            figures["bytes"] += WIDTHS[high >> 9 & 7]
    return figures


def loops(instructions):
    """(first, last) index of each backward branch's range. A branch to itself, behind the end of the code, is none."""
    for index, (opcode, low, high) in enumerate(instructions):
        if opcode == BRANCH and 0 <= (target := branch_target(index, low, high)) < index:
            yield target, index


def costs(code):
    instructions = list(decode(code))
    while instructions and instructions[-1][0] == 0x918:  # NOPs that fill up
        instructions.pop()
    found = {"kernel": count(instructions)}
    best = None
    for first, last in loops(instructions):
        figures = count(instructions[first:last + 1])
        rank = (figures["products"], 0 if figures["products"] else figures["bytes"], -figures["issue"])
        if best is None or rank > best[0]:
            best = rank, figures
    if best and (best[0][0] or best[0][1]):
        found["loop"] = best[1]
    return found


def behind_wait(code):
    """Instructions from the wait for earlier kernels to the first store to global memory, as the code lies: what a kernel of the
    chain adds to it, apart from memory's latencies. None without either."""
    opcodes = [opcode for opcode, _, _ in decode(code)]
    if WAIT not in opcodes or STORE not in opcodes[opcodes.index(WAIT):]:
        return None
    first = opcodes.index(WAIT)
    return opcodes.index(STORE, first) - first


def of_cubin(elf):
    """{kernel: costs}"""
    return {name.removeprefix(".text."): costs(code) for name, (code, _) in code_object.sections(elf).items()
            if name.startswith(".text.")}


def compare(name, found, committed):
    """Yields (True if it is a rise, message)."""
    for part in ("kernel", "loop"):
        before, now = committed.get(part), found.get(part)
        if before is None or now is None:
            if before != now:
                yield True, f"{name}: {part}: {'none' if now is None else 'new'}"
            continue
        for figure, value in now.items():
            was = before.get(figure, 0)
            limit = was * (1 + ISSUE_TOLERANCE) if figure == "issue" else was
            if value > limit:
                yield True, f"{name}: {part}: {figure} {was} -> {value}"
            elif value < was and (figure != "issue" or value < was * (1 - ISSUE_TOLERANCE)):
                yield False, f"{name}: {part}: {figure} {was} -> {value}"
