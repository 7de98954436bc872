"""Reads PTX as nvcc writes it: entries, instructions, which instruction may follow which, and from which kernel parameters
an address comes."""
import re
from dataclasses import dataclass, field

LABEL = re.compile(r"([$\w.]+):(?!:)\s*")
STATEMENT = re.compile(r"([^;{}]|\{[^;{}]*\})*;")
STATE_SPACES = {"param", "shared", "local", "const", "tex"}


@dataclass
class Instruction:
    predicate: str  # such as %p1 or !%p1; empty if there is none
    opcode: str
    operands: str
    targets: list = field(default_factory=list)  # labels that it may jump to

    @property
    def text(self):
        return f"{'@' + self.predicate + ' ' if self.predicate else ''}{self.opcode} {self.operands}".strip()

    @property
    def parts(self):
        return self.opcode.split(".")

    def ends(self):
        """True if the next instruction is not reached from here."""
        return not self.predicate and self.parts[0] in ("bra", "brx", "ret", "exit", "trap")

    def registers(self):
        return re.findall(r"%[a-z]+\d+", self.operands)

    def address(self):
        """The text in the last brackets: the address in memory that a load, a store or a copy from global memory accesses."""
        found = re.findall(r"\[([^\]]*)\]", self.operands)
        if not found:
            return ""
        # cp.async and bulk copies name the destination first; the size or a barrier may follow the source.
        return found[1] if self.parts[0] == "cp" and len(found) > 1 else found[0]


@dataclass
class Entry:
    name: str
    instructions: list
    labels: dict  # name -> index of the instruction behind it
    max_threads: int
    min_blocks: int  # on a multiprocessor, as launch bounds promise; 0: not said


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def parse_body(body):
    instructions, labels, tables = [], {}, {}
    at, label = 0, ""
    while at < len(body):
        if body[at].isspace() or body[at] in "{}":  # braces: scopes of inline assembler
            at += 1
            continue
        if match := LABEL.match(body, at):
            label = match[1]
            labels[label] = len(instructions)
            at = match.end()
            continue
        match = STATEMENT.match(body, at)
        if not match:
            if body.startswith(".loc", at) or body.startswith(".file", at):
                at = body.find("\n", at) % (len(body) + 1)
                continue
            raise ValueError(f"PTX that cannot be read: {body[at:at + 60]!r}")
        statement = " ".join(match[0][:-1].split())
        at = match.end()
        if statement.startswith(".branchtargets"):
            tables[label] = re.findall(r"[$\w.]+", statement.removeprefix(".branchtargets"))
        elif not statement.startswith("."):
            words = re.match(r"(?:@(!?%\w+)\s+)?([\w.:]+)\s*(.*)", statement)
            instructions.append(Instruction(words[1] or "", words[2], words[3]))
    for instruction in instructions:
        if instruction.parts[0] == "bra":
            instruction.targets = [instruction.operands.strip()]
        elif instruction.parts[0] == "brx":
            instruction.targets = tables[instruction.operands.split(",")[-1].strip()]
    return instructions, labels


def entries(text):
    """Every kernel in a PTX module."""
    text = re.sub(r"^\s*\.(?:loc|file)\b[^\n]*$", "", strip_comments(text), flags=re.M)
    for match in re.finditer(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{;]*)\{", text, re.S):
        depth, end = 1, match.end()
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        threads = re.search(r"\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", match[3])
        blocks = re.search(r"\.minnctapersm\s+(\d+)", match[3])
        count = 1
        for size in threads.groups() if threads else ():
            count *= int(size or 1)
        instructions, labels = parse_body(text[match.end():end - 1])
        yield Entry(match[1], instructions, labels, count if threads else 0, int(blocks[1]) if blocks else 0)


def successors(entry, index):
    instruction = entry.instructions[index]
    following = [entry.labels[target] for target in instruction.targets]
    if not instruction.ends():
        following.append(index + 1)
    return following


def reached_without(entry, stops):
    """Indices of the instructions that are reached from the beginning on a path without any of `stops`; the number of
    instructions stands for the end of the text."""
    seen, waiting = set(), [0]
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        if index < len(entry.instructions) and index not in stops:
            waiting += successors(entry, index)
    return seen - set(stops)


def touches_global(instruction):
    """"read", "write" or "" of global memory. An access without a state space may be to any, so it counts. A prefetch into the
    second-level cache alone is none: that cache is where memory is one for all."""
    parts = instruction.parts
    spaces = {part.split("::")[0] for part in parts[1:]}
    if parts[0] in ("prefetch", "prefetchu"):
        return "" if "L2" in parts else "read"
    if parts[0] == "cp":
        if parts[1:3] == ["async", "bulk"] and "prefetch" in parts:
            return ""
        if "global" not in spaces:
            return ""
        order = [part.split("::")[0] for part in parts if part.split("::")[0] in ("global", "shared")]
        return "write" if order[0] == "global" or parts[1] == "reduce" else "read"
    if parts[0] in ("ld", "ldu"):
        return "read" if "global" in spaces or not spaces & STATE_SPACES else ""
    if parts[0] in ("st", "atom", "red", "multimem", "discard", "applypriority", "tensormap", "sured", "sust"):
        return "write" if "global" in spaces or not spaces & STATE_SPACES else ""
    return "read" if parts[0] in ("tex", "tld4", "suld", "call") else ""


def written_registers(instruction):
    """The registers that an instruction writes: those of its first operand."""
    if instruction.parts[0] in ("st", "red", "bra", "brx", "bar", "barrier", "cp", "prefetch", "membar", "fence", "griddepcontrol"):
        return []
    first = re.match(r"\s*(\{[^}]*\}|[^,]*)", instruction.operands)[1]
    return re.findall(r"%[a-z]+\d+", first)


def parameter_addresses(entry):
    """{register: (number, offset)} of registers that hold the address of a place in the parameters, which nvcc makes of a
    reference to a part of them."""
    found = {}
    changed = True
    while changed:
        changed = False
        for instruction in entry.instructions:
            written = written_registers(instruction)
            if len(written) != 1 or written[0] in found or instruction.parts[0] not in ("mov", "add"):
                continue
            operands = [operand.strip() for operand in instruction.operands.split(",")[1:]]
            parameter = re.search(r"_param_(\d+)$", operands[0])
            if parameter and len(operands) == 1:
                found[written[0]] = int(parameter[1]), 0
            elif operands[0] in found and all(operand.isdigit() for operand in operands[1:]):
                number, offset = found[operands[0]]
                found[written[0]] = number, offset + sum(int(operand) for operand in operands[1:])
            else:
                continue
            changed = True
    return found


def loaded_parameter(instruction, addresses):
    """(number, offset) of what an ld.param loads, or None."""
    address = instruction.address()
    if match := re.search(r"_param_(\d+)(?:\+(\d+))?", address):
        return int(match[1]), int(match[2] or 0)
    match = re.fullmatch(r"\s*(%\w+)(?:\+(-?\d+))?\s*", address)
    if not match or match[1] not in addresses:
        return None
    number, offset = addresses[match[1]]
    return number, offset + int(match[2] or 0)


def origins(entry):
    """{register: {(kind, offset)}}: of which parameters its value was made. kind: "value", "pointer" (it was made an address of
    global memory), "memory" (loaded from memory, offset -1). Parameters of 4 bytes or less are indices and are not followed.
    offset: of the parameter block's bytes, behind those of earlier parameters as (number, offset)."""
    found, addresses = {}, parameter_addresses(entry)
    changed = True
    while changed:
        changed = False
        for instruction in entry.instructions:
            written = written_registers(instruction)
            if not written:
                continue
            parts = instruction.parts
            if parts[0] == "ld" and "param" in parts:
                wide = parts[-1] in ("u64", "b64", "s64")
                place = loaded_parameter(instruction, addresses)
                made = [{("value", place[0], place[1] + 8 * i)} if wide and place else set() for i in range(len(written))]
            elif parts[0] in ("ld", "ldu", "atom"):
                made = [{("memory", -1, -1)}] * len(written)
            else:
                sources = instruction.registers()[len(written):]
                union = set().union(*(found.get(source, set()) for source in sources), *(found.get(r, set()) for r in written if r in sources))
                if parts[0] == "cvta" and "global" in parts:
                    union = {("pointer" if kind == "value" else kind, number, offset) for kind, number, offset in union}
                made = [union] * len(written)
            for register, of in zip(written, made):
                if not of <= found.setdefault(register, set()):
                    found[register] |= of
                    changed = True
    return found


def pointers(entry, found):
    """The parameters (number, offset) that are addresses: made one of global memory, or accessed as they are."""
    known = {origin[1:] for of in found.values() for origin in of if origin[0] == "pointer"}
    for instruction in entry.instructions:
        if touches_global(instruction):
            of = set().union(*(found.get(register, set()) for register in re.findall(r"%[a-z]+\d+", instruction.address())))
            if not any(origin[0] != "value" for origin in of):
                known |= {origin[1:] for origin in of}
    return known


def address_origins(entry, instruction, found):
    """The origins of an access's address: parameters that are pointers (or any, if none is), and addresses from memory."""
    union = set().union(*(found.get(register, set()) for register in re.findall(r"%[a-z]+\d+", instruction.address())))
    known = pointers(entry, found)
    return {origin for origin in union if origin[0] == "memory" or origin[1:] in known} or union
