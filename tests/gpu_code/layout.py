"""Offsets of fields in the plain structs that kernels take: pointers, numbers, enumerations and structs of these."""
import functools
import re

SIZES = {"bool": 1, "char": 1, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int": 4, "unsigned": 4, "int32_t": 4, "uint32_t": 4,
         "float": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8}
FIELD = re.compile(r"^\s*(?:const\s+)?([\w:]+)(\s*\*(?:\s*const)?)?\s+([\w\s=,.:{}]+);", re.M)


class Structs:
    """text: of all headers and sources that may define them."""

    def __init__(self, text):
        self.text = re.sub(r"//[^\n]*", "", text)

    # Each searches all of the text.
    @functools.cache
    def body(self, name):
        match = re.search(rf"\bstruct {name} \{{(.*?)^\}};", self.text, re.S | re.M)
        if not match:
            raise KeyError(f"no struct {name}")
        return match[1]

    @functools.cache
    def size(self, type_name, pointer):
        """(size, alignment)"""
        if pointer:
            return 8, 8
        if type_name in SIZES:
            return SIZES[type_name], SIZES[type_name]
        match = re.search(rf"\benum class {type_name}(?:\s*:\s*(\w+))?\s*\{{", self.text)
        if match:
            return SIZES[match[1] or "int"], SIZES[match[1] or "int"]
        end, alignment = 0, 1
        for _, _, offset, (size, align) in self.fields(type_name):
            end, alignment = offset + size, max(alignment, align)
        return (end + alignment - 1) // alignment * alignment, alignment

    def fields(self, name):
        """(name, type, offset, (size, alignment)) of each field."""
        end = 0
        fields = "\n".join(line for line in self.body(name).splitlines() if "(" not in line)
        for match in FIELD.finditer(fields):
            size, alignment = self.size(match[1], match[2])
            for declared in re.sub(r"\{[^}]*\}", "", match[3]).split(","):
                offset = (end + alignment - 1) // alignment * alignment
                end = offset + size
                yield declared.split("=")[0].strip(), match[1], offset, (size, alignment)

    def offset(self, name, path):
        """The offset of a field: offset("NormKernelParams", "norm.weight")"""
        first, _, rest = path.partition(".")
        for field, type_name, offset, _ in self.fields(name):
            if field == first:
                return offset + (self.offset(type_name, rest) if rest else 0)
        raise KeyError(f"{name} has no field {first}")
