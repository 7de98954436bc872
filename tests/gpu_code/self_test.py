"""Tests the rules of rules.py and the counting of costs.py on small texts, as TAP: a kernel that keeps every rule passes, and
each planted fault is found. Needs no nvcc.

    python3 tests/gpu_code/self_test.py
"""
import struct
import sys
import tempfile
from pathlib import Path

import code_object
import costs
import layout
import ptx
import rules

STRUCTS = layout.Structs("""
enum class DType : uint8_t { kF32 };
struct ActivationPtr {
  void* data = nullptr;
  DType dtype = DType::kF32;
  ActivationPtr(void* p, DType type) : data(p), dtype(type) {}
};
struct NormParams {
  ActivationPtr x;  // [T, D]
  float* residual;
  const float* weight;   // 24
};
struct NormKernelParams {
  NormParams norm;
};
struct GemvNext {
  const uint8_t* begin = nullptr;
};
struct GemvInput {
  const float* norm_weight;
};
struct GemvKernelParams {
  const uint16_t* weight;
  const uint16_t* x;  // 8
  const float* bias;
  bool is_f32, other;
  int num_out = 1;  // 28
  GemvNext next;  // 32
  GemvInput input;  // 40
};
struct AddBiasKernelParams {
  ActivationPtr out;
  const float* bias;  // 16
};
""")
# nvcc's output for a kernel such as GemvKernel, shortened: weights before the wait, x and out behind it; a loop, a branch through
# a table, scopes of inline assembler.
GOOD = """
.version 9.0
.target sm_90a
.address_size 64
	// .globl	Kernel
.extern .shared .align 16 .b8 memory[];
.visible .entry Kernel(
	.param .align 8 .b8 Kernel_param_0[32]
)
.maxntid 512, 1, 1
.minnctapersm 1
{
	.reg .pred 	%p<4>;
	.reg .b64 	%rd<12>;
	.loc	1 171 0
	ld.param.v2.u32 	{%r1, %r2}, [Kernel_param_0+24];
	ld.param.u64 	%rd1, [Kernel_param_0+8];
	ld.param.u64 	%rd2, [Kernel_param_0];
	cvta.to.global.u64 	%rd3, %rd2; /* weight */
	mov.u32 	%r3, %tid.x;
	mul.wide.s32 	%rd4, %r3, 16;
	add.s64 	%rd5, %rd3, %rd4;
	setp.ge.s32 	%p1, %r3, %r2;
	@%p1 bra 	$L__BB0_2;
	ld.global.cs.v4.u32 	{%r4, %r5, %r6, %r7}, [%rd5];
$L__BB0_2:
	griddepcontrol.launch_dependents;
	// begin inline asm
	griddepcontrol.wait;
	// end inline asm
	@%p1 bra 	$L__BB0_9;
	cvta.to.global.u64 	%rd6, %rd1;
	add.s64 	%rd7, %rd6, %rd4;
$L__BB0_4:
	ld.global.u32 	%r8, [%rd7+4];
	{ .reg .b32 %t; cp.async.cg.shared.global [%r8], [%rd1], 16, %r9; }
	add.s64 	%rd7, %rd7, 64;
	$L_table: .branchtargets
		$L__BB0_4,
		$L__BB0_9;
	brx.idx 	%r8, $L_table;
$L__BB0_9:
	@%p1 ret;
	st.global.u32 	[%rd6], %r8;
	ret;
}
"""
WAIT = "griddepcontrol.wait;"


def ptx_faults(text, name="GemvKernel<bf16, 1, 1, true, true>"):
    faults = []
    for entry in ptx.entries(text):
        faults += rules.check_waits_once(entry, name)
        faults += rules.check_releases_late(entry, name)
        if rules.base(name) in rules.RELEASES_LATE | rules.RELEASES_LATE_OR_NOT:  # whose parameters differ from GOOD's
            continue
        faults += rules.check_ends_after_wait(entry, name)
        faults += rules.check_reads_before_wait(entry, name, STRUCTS)
        faults += rules.check_no_cached_reads(entry, name, STRUCTS)
        faults += rules.check_prefetches(entry, name, STRUCTS)
        faults += rules.check_divisions(entry, name)
    return faults


def planted(old, new):
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new, 1)


# The same with the address of a part of the parameters in a register.
BY_ADDRESS = planted("ld.param.u64 	%rd2, [Kernel_param_0];",
                     "mov.b64 	%rd8, Kernel_param_0;\n	add.s64 	%rd9, %rd8, 24;\n	ld.param.u64 	%rd2, [%rd9+16];")
# Name, PTX, a part of the message, and the kernel that it pretends to be.
PLANTED = [
    ("x read by an address in the parameters", BY_ADDRESS.replace("%rd9+16", "%rd9+-16"), "byte 8 of the parameters"),
    ("no wait", planted(WAIT, ""), "0 griddepcontrol.wait"),
    ("two waits", planted(WAIT, WAIT + "\n" + WAIT), "2 griddepcontrol.wait"),
    ("a release before the wait", GOOD, "can release the next kernel before the wait", "RopeKvWriteKernel<bf16, 8, true>"),
    ("a sum releases before the wait", GOOD, "can release the next kernel before the wait", "SumKernel<bf16, true>"),
    ("no release", planted("griddepcontrol.launch_dependents;", ""), "no griddepcontrol.launch_dependents", "RopeKvWriteKernel<bf16, 8, true>"),
    ("a wait of some threads", planted(WAIT, "@%p1 " + WAIT), "not every thread waits"),
    ("a wait on one side of a branch", planted("griddepcontrol.launch_dependents;", "@!%p1 bra $L__BB0_4;"), "before the wait, through byte 8"),
    ("a return before the wait", planted("mov.u32 	%r3, %tid.x;", "@%p1 ret;"), "can end before the wait: @%p1 ret"),
    ("an exit before the wait", planted("mov.u32 	%r3, %tid.x;", "@%p1 exit;"), "can end before the wait: @%p1 exit"),
    ("activations read before the wait", planted("[Kernel_param_0];", "[Kernel_param_0+8];"), "through byte 8 of the parameters"),
    ("a pointer of another kernel's weights", GOOD, "through byte 0 of the parameters", "NormKernel<bf16>"),
    ("weights or activations, as a condition says", planted("@%p1 bra 	$L__BB0_2;", "selp.b64 %rd5, %rd5, %rd1, %p1;"),
     "through byte 8 of the parameters"),
    ("a pointer that is loaded from memory", planted("@%p1 bra 	$L__BB0_2;", "ld.global.u64 %rd5, [%rd5];"), "through an address from memory"),
    ("a generic load before the wait", planted("ld.global.cs.v4.u32 	{%r4, %r5, %r6, %r7}, [%rd5];", "ld.u32 %r4, [%rd1];"), "through byte 8"),
    ("a copy to shared memory before the wait",
     planted("@%p1 bra 	$L__BB0_2;", "cp.async.cg.shared.global [%r3], [%rd1], 16;"), "before the wait, through byte 8"),
    ("a store before the wait", planted("@%p1 bra 	$L__BB0_2;", "st.global.u32 [%rd5], %r3;"), "before the wait: st.global.u32"),
    ("an atomic before the wait", planted("@%p1 bra 	$L__BB0_2;", "atom.global.add.u32 %r9, [%rd5], 1;"), "before the wait: atom.global"),
    ("a call before the wait", planted("@%p1 bra 	$L__BB0_2;", "call.uni (retval0), helper, (param0);"), "before the wait: call"),
    ("a prefetch of stale lines", planted("@%p1 bra 	$L__BB0_2;", "prefetch.global.L1 [%rd1];"), "through byte 8"),
    ("activations fetched ahead", planted("@%p1 bra 	$L__BB0_2;", "cp.async.bulk.prefetch.L2.global [%rd1], %r3;"), "fetches ahead what is not"),
    ("the same behind the wait", planted("ld.global.u32 	%r8", "prefetch.global.L2 [%rd7]; ld.global.u32 %r8"), "fetches ahead what is not"),
    ("what an address in memory names, fetched ahead",
     planted("@%p1 bra 	$L__BB0_2;", "ld.global.u64 %rd5, [%rd5]; prefetch.global.L2 [%rd5];"), "fetches ahead what is not"),
    ("a jump around the wait", planted("griddepcontrol.launch_dependents;", "@%p1 bra $L__BB0_9;"), "can end before the wait"),
    ("a cached read of activations", planted("ld.global.u32 	%r8", "ld.global.nc.u32 	%r8"), "past the coherent caches"),
    ("a division of 64 bits", planted("add.s64 	%rd7, %rd7, 64;", "div.s64 %rd7, %rd7, %rd4;"), "1 divisions of 64 bits"),
    ("a remainder of 64 bits", planted("add.s64 	%rd7, %rd7, 64;", "rem.u64 %rd7, %rd7, %rd4;"), "1 divisions of 64 bits"),
]
ALLOWED = [
    ("weights of 16 bytes by a generic pointer", planted("cvta.to.global.u64 	%rd3, %rd2;", "mov.u64 %rd3, %rd2;")),
    ("a prefetch into the second-level cache", planted("@%p1 bra 	$L__BB0_2;", "prefetch.global.L2 [%rd5];")),
    ("a bulk prefetch", planted("@%p1 bra 	$L__BB0_2;", "cp.async.bulk.prefetch.L2.global [%rd2], %r3;")),
    ("a bulk prefetch of the next product's weights behind the wait",
     planted("ld.global.u32 	%r8", "ld.param.u64 %rd8, [Kernel_param_0+32]; cp.async.bulk.prefetch.L2.global [%rd8], %r3; ld.global.u32 %r8")),
    ("a cached read of weights", planted("ld.global.cs.v4.u32", "ld.global.nc.v4.u32")),
    ("shared memory before the wait", planted("@%p1 bra 	$L__BB0_2;", "st.shared.u32 [memory], %r3; atom.shared.add.u32 %r9, [memory], 1;")),
    ("a division of 32 bits", planted("add.s64 	%rd7, %rd7, 64;", "div.s32 %r9, %r8, %r2;")),
]


def instruction(opcode, width=0, offset=None, index=0):
    """16 bytes of machine code. offset: of a branch, in instructions; width: of an access to memory, or of a matrix load."""
    low, high = opcode, width << 9 if opcode in costs.GLOBAL else width << 8
    if offset is not None:
        words = (offset - index - 1) * 4
        low |= (words & 255) << 16
        both = high << 64 | low | (words >> 8 & (1 << 40) - 1) << 34
        low, high = both & (1 << 64) - 1, both >> 64
    return struct.pack("<QQ", low, high)


HMMA, LDSM, LDG, LDGSTS, MEMBAR, MUFU, BRA, MOV = 0x23C, 0x83B, 0x981, 0xFAE, 0x992, 0x308, 0x947, 0x202
# A loop of 8 instructions from the third on, a smaller one behind it without products, the end and the branch to itself.
LOOP = [instruction(LDG, 6), instruction(MUFU)] + [instruction(LDGSTS, 6), instruction(LDSM, 2), instruction(HMMA), instruction(HMMA),
        instruction(MUFU), instruction(MOV), instruction(MOV), instruction(BRA, offset=2, index=9)] + [
        instruction(LDG, 4), instruction(BRA, offset=10, index=11), instruction(costs.EXIT), instruction(BRA, offset=13, index=13),
        instruction(0x918), instruction(0x918)]


def costs_with(extra):
    """Costs of LOOP with more instructions in its loop."""
    code = LOOP[:8] + extra + LOOP[8:9] + [instruction(BRA, offset=2, index=9 + len(extra))]
    return costs.costs(b"".join(code + LOOP[10:]))


def cost_faults(extra):
    return [message for rise, message in costs.compare("Kernel", costs_with(extra), costs_with([])) if rise]


def check_all():
    """(name, faults of the test) of each case."""
    yield "a kernel that keeps every rule passes", ptx_faults(GOOD)
    for name, text, message, *kernel in PLANTED:
        found = ptx_faults(text, *kernel)
        yield f"planted: {name}", [] if any(message in fault for fault in found) else [f"not found; found are {found}"]
    for name, text in ALLOWED:
        yield f"allowed: {name}", ptx_faults(text)

    used = {"registers": 128, "stack": 0}
    entry = ptx.Entry("Kernel", [], {}, 512, 1)
    yield "128 registers let 512 threads run", list(rules.check_resources("Kernel", used, entry))
    for name, change, launch in [("spilled registers", {"stack": 8}, entry), ("two blocks promised, one fits", {}, ptx.Entry("Kernel", [], {}, 512, 2)),
                                 ("one register too many", {"registers": 129}, entry), ("no launch bounds", {}, ptx.Entry("Kernel", [], {}, 0, 0))]:
        yield f"planted: {name}", [] if list(rules.check_resources("Kernel", {**used, **change}, launch)) else ["not found"]

    symbols = {"$__internal_0_$__cuda_sm20_div_s64", "Kernel"}
    yield "planted: a subroutine that divides", [] if list(rules.check_division_calls(symbols, ["RopeKernel<1>"])) else ["not found"]
    yield "allowed: a subroutine of another kind", list(rules.check_division_calls({"$__internal_2_$__cuda_sm20_rcp_rn_f32_slowpath"}, ["A"]))

    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder)
        for _, file, *_ in rules.PROMISES + rules.REGISTERS_MAX:
            text = [sentence for _, other, sentence, *_ in rules.PROMISES + rules.REGISTERS_MAX if other == file]
            (kernels / file).write_text("".join(f"// {' '.join(words.split()[:3])}\n// {' '.join(words.split()[3:])}\n" for words in text))
        decode, gemv = "DecodeKernel<bf16, 128>", "GemvKernel<bf16, 1, 1, true, true>"
        good = {decode: {"registers": 218}, gemv: {"registers": 128}, "GemvRingKernel<bf16, 1, 2, true>": {"registers": 64},
                "ExtendKernel<bf16, 128, true>": {"registers": 254},
                "ExpertLinearKernel<bf16, 1>": {"registers": 80}, "ExpertLinearKernel<bf16, 4>": {"registers": 80}}
        good |= {f"WideKernel<bf16, {rows}, true>": {"registers": 128} for rows in (1, 2, 4)}
        good |= {"SegmentAttentionKernel<bf16, 128>": {"registers": 128}}
        good |= {f"ChunkRecurrenceKernel<bf16, true, {keys}>": {"registers": 187} for keys in (128, 256)}
        threads = {name: 128 for name in good} | {gemv: 512}
        yield "the promises of the sources hold", list(rules.check_promises(good, threads, kernels))
        renamed = {("DecodeKernel<bf16, 128, true>" if name == decode else name): used for name, used in good.items()}
        for name, used, threads_of, message in [
                ("too many registers for two blocks", {**good, decode: {"registers": 255}}, {**threads, decode: 160}, "1 blocks run at once"),
                ("more registers than a source says", {**good, gemv: {"registers": 136}}, threads, "136 registers"),
                ("a kernel of another name", renamed, {**threads, "DecodeKernel<bf16, 128, true>": 128}, "no kernel is named DecodeKernel")]:
            found = list(rules.check_promises(used, threads_of, kernels))
            yield f"planted: {name}", [] if any(message in fault for fault in found) else [f"not found; found are {found}"]
        (kernels / "gemv_tile.cuh").write_text("// 64 registers\n")
        yield "planted: a promise that a source does not make", [] if list(rules.check_promises(good, threads, kernels)) else ["not found"]

    behind = {f"GemvEndKernel<bf16, {rows}, 8, {end}, false>": most for rows, end, most in [(1, 1, 335), (3, 1, 370), (2, 2, 370), (3, 3, 583)]}
    yield "instructions behind the wait, at their limits", list(rules.check_behind_wait(behind))
    for name, most in behind.items():
        yield f"planted: one more behind the wait of {name}", [] if list(rules.check_behind_wait({**behind, name: most + 1})) else ["not found"]
    yield "planted: no kernel with the add", ["not found"] if not list(rules.check_behind_wait(
        {name: most for name, most in behind.items() if ", 2, false" not in name})) else []
    text = b"".join([instruction(MOV), instruction(costs.WAIT), instruction(MOV), instruction(MOV), instruction(costs.STORE, 4)])
    yield "instructions behind the wait are counted", [] if costs.behind_wait(text) == 3 else [f"{costs.behind_wait(text)}"]
    yield "without a wait there are none", [] if costs.behind_wait(instruction(MOV)) is None else ["some"]

    loop = costs_with([])["loop"]
    wanted = {"issue": 8, "products": 2, "matrix_loads": 4, "copies": 1, "special": 1, "fences": 0, "barriers": 0, "atomics": 0, "bytes": 16}
    yield "the main loop is the one with products", [] if loop == wanted else [f"{loop}"]
    yield "the same costs pass", cost_faults([])
    for name, extra in [("a fence in the loop", [instruction(MEMBAR)]), ("a copy more", [instruction(LDGSTS, 6)]), ("a matrix load more", [instruction(LDSM, 0)]),
                        ("a special function more", [instruction(MUFU)]), ("bytes more", [instruction(LDG, 5)]),
                        ("an instruction more in 8", [instruction(MOV)])]:
        yield f"planted: {name}", [] if any("loop" in fault for fault in cost_faults(extra)) else ["not found"]
    many = {"loop": {**wanted, "issue": 200}, "kernel": {}}
    yield "allowed: two instructions more in 200", [message for rise, message in
                                                    costs.compare("Kernel", {"loop": {**wanted, "issue": 202}, "kernel": {}}, many) if rise]
    lower = list(costs.compare("Kernel", {"loop": {**wanted, "fences": 0}, "kernel": {}}, {"loop": {**wanted, "fences": 1}, "kernel": {}}))
    yield "a lower cost is only said", [] if lower == [(False, "Kernel: loop: fences 1 -> 0")] else [f"{lower}"]

    entry = next(ptx.entries(GOOD))
    yield "an address in the parameters is followed", ptx_faults(BY_ADDRESS.replace("%rd9+16", "%rd9+-24"))
    yield "launch bounds are read", [] if (entry.max_threads, entry.min_blocks) == (512, 1) else [f"{entry.max_threads}, {entry.min_blocks}"]
    yield "offsets of fields", [] if (STRUCTS.offset("NormKernelParams", "norm.weight"), STRUCTS.offset("GemvKernelParams", "num_out"),
                                      STRUCTS.offset("AddBiasKernelParams", "bias")) == (24, 28, 16) else ["wrong"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gemv.cu.o"
        path.write_bytes(object_with(struct.pack("<HHIQ", code_object.PTX, 257, 64, 16) + b"\0" * 48 + b"\x28\xb5\x2f\xfd" + b"\0" * 12))
        try:
            list(code_object.images(path))
            yield "compressed code is refused", ["it is read"]
        except code_object.NotReadable as reason:
            yield "compressed code is refused", [] if "gpu_compress" in str(reason) else [str(reason)]


def object_with(entries):
    """An ELF file whose section .nv_fatbin holds one container of these entries."""
    fatbin = struct.pack("<IHHQ", code_object.FATBIN_MAGIC, 1, 16, len(entries)) + entries
    names = b"\0.nv_fatbin\0.shstrtab\0"
    table = 64 + len(fatbin) + len(names)
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 33 + struct.pack("<Q", table) + b"\0" * 10 + struct.pack("<HHH", 64, 3, 2)
    section = lambda name, offset, size: struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)  # noqa: E731
    return head + fatbin + names + b"\0" * 64 + section(1, 64, len(fatbin)) + section(12, 64 + len(fatbin), len(names))


def main():
    results = list(check_all())
    print(f"1..{len(results)}")
    for number, (name, faults) in enumerate(results, 1):
        for fault in faults:
            print(f"# {fault}")
        print(f"{'not ' if faults else ''}ok {number} - {name}")
    return 1 if any(faults for _, faults in results) else 0


if __name__ == "__main__":
    sys.exit(main())
