"""Rules of the kernels' code that no GPU is needed to check. Each function yields a message for each fault.

Programmatic dependent launch: a kernel may start while those before it run, and `griddepcontrol.wait` waits for the end of all
of them. A kernel whose every thread waits before it ends, and that touches nothing earlier but constants, is right whatever runs
before and behind it: when kernel N + 1 has ended, N has, too, so that N + 2 may read what N wrote.
"""
import re

import ptx

# Reads that a kernel may do before the wait: through fields of its parameters that point to memory which no step writes.
WEIGHTS = "weights: written when the model is loaded, before any step"
CONSTANT_FIELDS = {
    "GemvKernel": ("GemvKernelParams", {"weight": WEIGHTS, "next.begin": WEIGHTS, "input.norm_weight": WEIGHTS}),
    "GemvRingKernel": ("GemvRingKernelParams", {"weight": WEIGHTS, "next.begin": WEIGHTS, "input.norm_weight": WEIGHTS}),
    **{name: ("CodeLinesParams", {f"rows.{field}": WEIGHTS for field in
                                  ("codes", "upper", "scales", "bases", "zeros", "offsets", "offset_bases")})
       for name in ("GemvCodesKernel", "GemvCodeLinesKernel")},
    "GemvEndKernel": ("GemvEndKernelParams", {field: WEIGHTS for field in (
        "product.weight", "product.next.begin", "product.input.norm_weight", "far.first.begin", "far.second.begin", "far.third.begin")}),
    "GemvRingEndKernel": ("GemvRingEndKernelParams", {field: WEIGHTS for field in (
        "product.weight", "product.next.begin", "product.input.norm_weight", "far.first.begin", "far.second.begin", "far.third.begin")}),
    "NormKernel": ("NormKernelParams", {"norm.weight": WEIGHTS}),
    "ScaledNormKernel": ("ScaledNormKernelParams", {"norm.norm.weight": WEIGHTS}),
    "AddBiasKernel": ("AddBiasKernelParams", {"bias": WEIGHTS}),
    "RopeKvWriteKernel": ("RopeKernelParams", {"rope.q_norm": WEIGHTS, "rope.k_norm": WEIGHTS}),
    "RopeKvCodesKernel": ("RopeKernelParams", {"rope.q_norm": WEIGHTS, "rope.k_norm": WEIGHTS}),
}
# Kernels that wait when they first need results of the kernel before, a place that these rules do not follow, or that find their
# weights in a table of parameters. The tests of the order of accesses on the emulator hold them, with faults planted
# (tests/kernels/plants.py).
WAITS_LATE = {"DecodeKernel", "GemvChainKernel"}
# Kernels that release the next one after their wait, so that it may read, before its own, what kernels before this one wrote.
RELEASES_LATE = {"RopeKvWriteKernel", "RopeKvCodesKernel", "GemvChainKernel"}
# The same of kernels with instances that release nothing.
RELEASES_LATE_OR_NOT = {"SumKernel", "SumNormKernel", "GatherColumnsKernel"}
# Divisions of 64 bits, each a call of about 100 cycles: kernel -> (how many instructions, why).
DIVISIONS = {"SampleKernel": (2, "the cut of ties, once for a row, of sums in units of 2^-40")}

# Stack of a thread, which is none otherwise: kernel -> (bytes, why).
STACKS = {
    "SampleKernel": (8, "nvcc 12.4 spills two values of a row, stored and loaded once, for two blocks to run at once"),
    "ChunkRecurrenceKernel": (24, "beside a state of 256 keys no register is left for 7 words, once a chunk"),
    "PictureExtendKernel": (8, "the large kernels of E = 96 and 128 spill two values, as ExtendKernel does"),
    "ExtendKernel": (16, "the large kernel of E = 128 spills three values for its two ways of copying keys; on an H200 the second gains 5 %"),
}

# A multiprocessor of compute capability 9.0.
REGISTERS, SHARED_BYTES, THREADS, SHARED_RESERVED = 65536, 228 * 1024, 2048, 1024
# Sentences of the sources about blocks that run at once: kernel, file, the sentence, bytes of dynamic shared memory, blocks.
PROMISES = [
    (r"DecodeKernel<\w+, 128>", "attention_decode.cuh", "111 KB for E = 128 and 3 stages, so that two blocks fit into 227 KB",
     114_048, 2),
    (r"ExtendKernel<\w+, 128, true>", "attention_extend.cuh", "102 KB for E = 128, so that a multiprocessor with 227 KB holds 2 blocks",
     104_464, 2),
    (r"ExpertLinearKernel<\w+, 1>", "product_tile.cuh", "60 KB and 64 KB: three blocks at once", 61_520, 3),
    (r"ExpertLinearKernel<\w+, 4>", "product_tile.cuh", "60 KB and 64 KB: three blocks at once", 65_808, 3),
    (r"ChunkRecurrenceKernel<\w+, \w+, 128>", "recurrence_chunk.cu", "90 KB for up to 128 keys", 89_856, 1),
    (r"ChunkRecurrenceKernel<\w+, \w+, 256>", "recurrence_chunk.cu", "139 KB for up to 256", 139_008, 1),
    (r"SegmentAttentionKernel<\w+, 128>", "segment_attention.cu", "87 KB for D = 128, so that a multiprocessor with 227 KB holds two blocks",
     87_040, 2),
    (r"WideKernel<\w+, 1, true>", "attention_wide.cuh", "98, 122 and 172 KB for F = 1, 2 and 4", 99_984, 2),
    (r"WideKernel<\w+, 2, true>", "attention_wide.cuh", "98, 122 and 172 KB for F = 1, 2 and 4", 125_200, 1),
    (r"WideKernel<\w+, 4, true>", "attention_wide.cuh", "98, 122 and 172 KB for F = 1, 2 and 4", 175_632, 1),
]
# Registers of a thread that the sources count on.
REGISTERS_MAX = [
    (r"Gemv(End)?Kernel<.*>", "gemv_tile.cuh", "128 registers for each thread", 128),
    (r"GemvRingKernel<\w+, 1, [12], true>", "gemv_ring.cu", "a block has 64 registers for each thread and about 45 KB of shared memory", 64),
]
# Instructions behind the wait, to the first store (costs.behind_wait), of the kernels that are made to have few: without an end
# (EndKind) of their own they have 603 to 687.
BEHIND_WAIT = [
    (r"GemvEndKernel<\w+, [12], \w+, 1, \w+>", 335),
    (r"GemvEndKernel<\w+, 3, \w+, 1, \w+>", 370),
    (r"GemvEndKernel<\w+, \d, \w+, 2, \w+>", 370),
    (r"GemvEndKernel<\w+, \d, \w+, 3, \w+>", 583),
]


def base(name):
    return name.split("<")[0]


def waits(entry):
    return [i for i, instruction in enumerate(entry.instructions) if instruction.opcode == "griddepcontrol.wait"]


def check_waits_once(entry, name):
    if base(name) in WAITS_LATE:
        return
    found = waits(entry)
    if len(found) != 1:
        yield f"{name}: {len(found)} griddepcontrol.wait instead of 1"
    for index in found:
        if entry.instructions[index].predicate:
            yield f"{name}: not every thread waits: {entry.instructions[index].text}"


def early(entry):
    """Instructions that a thread can reach without having waited."""
    stops = {index for index in waits(entry) if not entry.instructions[index].predicate}
    reached = ptx.reached_without(entry, stops)
    return [entry.instructions[index] for index in sorted(reached) if index < len(entry.instructions)], len(entry.instructions) in reached


def check_releases_late(entry, name):
    if base(name) not in RELEASES_LATE | RELEASES_LATE_OR_NOT:
        return
    release = "griddepcontrol.launch_dependents"
    if base(name) in RELEASES_LATE and not any(instruction.opcode == release for instruction in entry.instructions):
        yield f"{name}: no {release}"
    if any(instruction.opcode == release for instruction in early(entry)[0]):
        yield f"{name}: a thread can release the next kernel before the wait, and that kernel counts on what is before this one"


def check_ends_after_wait(entry, name):
    if base(name) in WAITS_LATE:
        return
    instructions, falls_out = early(entry)
    for instruction in instructions:
        if instruction.parts[0] in ("ret", "exit"):
            yield f"{name}: a thread can end before the wait: {instruction.text}"
    if falls_out:
        yield f"{name}: a thread can reach the end of the text before the wait"


def constants(name, structs):
    """{(number of the parameter, offset)} that CONSTANT_FIELDS allows."""
    struct, fields = CONSTANT_FIELDS.get(base(name), ("", {}))
    return {(0, structs.offset(struct, field)) for field in fields}


def check_reads_before_wait(entry, name, structs):
    if base(name) in WAITS_LATE:
        return
    found = None
    for instruction in early(entry)[0]:
        kind = ptx.touches_global(instruction)
        if not kind:
            continue
        if kind == "write" or instruction.parts[0] == "call":
            yield f"{name}: before the wait: {instruction.text}"
            continue
        found = found or ptx.origins(entry)
        sources = ptx.address_origins(entry, instruction, found)
        unknown = {source for source in sources if source[0] == "memory" or source[1:] not in constants(name, structs)}
        if unknown or not sources:
            where = ", ".join(sorted(f"byte {offset} of the parameters" if kind != "memory" else "an address from memory"
                                     for kind, _, offset in unknown)) or "an unknown address"
            yield f"{name}: before the wait, through {where}: {instruction.text}"


def check_no_cached_reads(entry, name, structs):
    """ld.global.nc may come from a cache that no write reaches while the kernel runs; with an early start, from before the wait."""
    found = None
    for instruction in entry.instructions:
        if instruction.parts[0] in ("ld", "ldu") and "nc" in instruction.parts or instruction.parts[0] == "ldu":
            found = found or ptx.origins(entry)
            sources = ptx.address_origins(entry, instruction, found)
            if not sources or any(source[0] == "memory" or source[1:] not in constants(name, structs) for source in sources):
                yield f"{name}: a read past the coherent caches, of memory that is not known to be constant: {instruction.text}"


def check_prefetches(entry, name, structs):
    """Fetching ahead, of weights only: of what steps write, a line may come before its contents, and is room lost."""
    found = None
    for instruction in entry.instructions:
        if instruction.parts[0] in ("prefetch", "prefetchu") or instruction.parts[0] == "cp" and "prefetch" in instruction.parts:
            found = found or ptx.origins(entry)
            sources = ptx.address_origins(entry, instruction, found)
            if not sources or any(source[0] == "memory" or source[1:] not in constants(name, structs) for source in sources):
                yield f"{name}: fetches ahead what is not known to be weights: {instruction.text}"


def check_divisions(entry, name):
    allowed, _ = DIVISIONS.get(base(name), (0, ""))
    found = [instruction.text for instruction in entry.instructions if re.fullmatch(r"(div|rem)\.[su]64", instruction.opcode)]
    if len(found) > allowed:
        yield f"{name}: {len(found)} divisions of 64 bits (at most {allowed}), each a call: {found[-1]}"


def check_division_calls(symbols, names):
    """Machine code calls no subroutine that divides, which ptxas adds (also for other instructions of PTX)."""
    if not any(base(name) in DIVISIONS for name in names):
        for symbol in symbols:
            if re.search(r"__cuda_sm\d+\w?_(div|rem)_[su]64", symbol):
                yield f"{' '.join(sorted({base(name) for name in names}))}: calls {symbol.split('$')[-1]}"


def blocks_by_registers(registers, threads):
    """Blocks of a multiprocessor: registers are handed out 256 at a time to a warp, to each of 4 schedulers."""
    warps = (threads + 31) // 32
    a_warp = (registers * 32 + 255) // 256 * 256
    return min(REGISTERS // 4 // a_warp * 4 // warps, THREADS // threads) if registers else THREADS // threads


def check_resources(name, used, entry):
    if used["stack"] > STACKS.get(base(name), (0, ""))[0]:
        yield f"{name}: {used['stack']} bytes of stack in each thread: registers are spilled, or an array is indexed"
    if entry and entry.max_threads and entry.min_blocks > blocks_by_registers(used["registers"], entry.max_threads):
        yield (f"{name}: {used['registers']} registers: {blocks_by_registers(used['registers'], entry.max_threads)} blocks of "
               f"{entry.max_threads} threads run at once, its launch bounds say {entry.min_blocks}")
    if entry and not entry.max_threads:
        yield f"{name}: no launch bounds"


def words_of(path):
    """A source's text without the line breaks of its comments."""
    return " ".join(" ".join(re.sub(r"^\s*//", "", line) for line in path.read_text().splitlines()).split())


def unmatched(pattern, names):
    if not any(re.fullmatch(pattern, name) for name in names):
        yield f"no kernel is named {pattern}"


def check_behind_wait(found):
    """found: instructions by name of the kernel."""
    for pattern, most in BEHIND_WAIT:
        yield from unmatched(pattern, found)
        for name in (name for name in found if re.fullmatch(pattern, name)):
            if found[name] is None or found[name] > most:
                yield f"{name}: {found[name]} instructions from the wait to the first store, of at most {most}"


def check_promises(used, threads, kernels):
    """used, threads: by name. kernels: the folder of the sources."""
    for pattern, file, sentence, shared, blocks in PROMISES:
        if sentence not in words_of(kernels / file):
            yield f"{file} does not say any more: {sentence}"
        yield from unmatched(pattern, used)
        for name in (name for name in used if re.fullmatch(pattern, name)):
            fit = min((SHARED_BYTES // (shared + SHARED_RESERVED)), blocks_by_registers(used[name]["registers"], threads[name]))
            if fit < blocks:
                yield f"{name}: {fit} blocks run at once, {file} says {blocks} ({used[name]['registers']} registers, {shared} bytes)"
    for pattern, file, sentence, registers in REGISTERS_MAX:
        if sentence not in words_of(kernels / file):
            yield f"{file} does not say any more: {sentence}"
        yield from unmatched(pattern, used)
        for name in (name for name in used if re.fullmatch(pattern, name)):
            if used[name]["registers"] > registers:
                yield f"{name}: {used[name]['registers']} registers, {file} says {registers}"


