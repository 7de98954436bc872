"""Copies of the kernels for the checks of order, with faults that a test turns on one at a time.

    python3 plants.py KERNELS_FOLDER OUTPUT_FOLDER

Writes each source of the folder as NAME_checked.h (dots become underscores), which includes the other copies, and
planted_faults.h, the names of the faults in the order of their numbers. Lines keep their numbers. A fault whose text is not in
its source exactly once gets an empty name there, so that its test fails rather than the build.
"""
import re
import sys
from pathlib import Path

# Name, file, the text that it replaces, and the text that replaces it; PLANTED is true if the fault is turned on.
FAULTS = [
    # Attention over splits, which the block that arrives last merges.
    ("decode: no fence before the count", "attention_decode.cuh",
     "device::ThreadFence();  // a thread that sees", "if (!PLANTED) device::ThreadFence();  // a thread that sees"),
    ("decode: no fence after the count", "attention_decode.cuh",
     "device::ThreadFence();  // threads that meet", "if (!PLANTED) device::ThreadFence();  // threads that meet"),
    ("decode: counted while other warps store", "attention_decode.cuh",
     "__syncthreads();  // they may be written again", "if (!PLANTED) __syncthreads();  // they may be written again"),
    ("decode: merged by lanes that have not met", "attention_decode.cuh",
     "__syncwarp();  // every lane sees the parts", "if (!PLANTED) __syncwarp();  // every lane sees the parts"),
    ("decode: counted by plain accesses", "attention_decode.cuh",
     "device::AtomicAddGlobal(args_.plan.arrived + counter, 1u);",
     "PLANTED ? args_.plan.arrived[counter]++ : device::AtomicAddGlobal(args_.plan.arrived + counter, 1u);"),
    ("decode: merged before the last part", "attention_decode.cuh",
     "before + 1 == static_cast<uint32_t>", "before + (PLANTED ? 2u : 1u) == static_cast<uint32_t>"),
    ("decode: the counter reset by every block", "attention_decode.cuh",
     "    if (!is_last) return 0;\n", "    { if (PLANTED) args_.plan.arrived[counter] = 0; } if (!is_last) return 0;\n"),
    ("decode: all splits store one part", "attention_decode.cuh",
     "PartOf(args_, query.row, walk.item.split, query.head);\n        if (column == 0) {",
     "PartOf(args_, query.row, PLANTED ? 0 : walk.item.split, query.head);\n        if (column == 0) {"),
    ("decode: the plan read before the wait", "attention_decode.cuh",
     "  if (!args.early) device::GridWait();\n  DecodeBlock<T, D> block(args, stages, DecodeMemory<T, D>(stages));\n",
     "  if (!args.early && !PLANTED) device::GridWait();\n"
     "  DecodeBlock<T, D> block(args, stages, DecodeMemory<T, D>(stages)); if (!args.early) device::GridWait();\n"),
    ("decode: the newest key read before the wait", "attention_decode.cuh",
     "if (ahead_.tile + Shape::kTileKeys >= ahead_.item.kv_len) Wait();",
     "if (!PLANTED && ahead_.tile + Shape::kTileKeys >= ahead_.item.kv_len) Wait();"),
    ("decode: the query read before the wait", "attention_decode.cuh",
     "CopyAhead(stage);\n    Wait();\n", "CopyAhead(stage);\n    if (!PLANTED) Wait();\n"),
    ("rope: released before its wait", "rope_kv_write.cu",
     "  if (norm != nullptr) LoadHead(units, norm, weight);\n",
     "  if (norm != nullptr) LoadHead(units, norm, weight); if (PLANTED) device::GridRelease();\n"),
    # Works that blocks take from a counter.
    ("decode: works taken by plain accesses", "attention_works.cuh",
     "static_cast<int32_t>(device::AtomicAddGlobal(args_.plan.works_taken, 1u));",
     "static_cast<int32_t>(PLANTED ? (*args_.plan.works_taken)++ : device::AtomicAddGlobal(args_.plan.works_taken, 1u));"),
    ("decode: the counter of works reset too early", "attention_works.cuh",
     "next_ + 1 == num_works_) *args_", "next_ + (PLANTED ? 2 : 1) == num_works_) *args_"),
    # Extend attention: of two blocks that come to a boundary the second folds; places for folds within a block.
    ("extend: no fence before the exchange", "attention_extend_tile.cuh",
     "device::ThreadFence();  // a block that sees", "if (!PLANTED) device::ThreadFence();  // a block that sees"),
    ("extend: no fence after the exchange", "attention_extend_tile.cuh",
     "device::ThreadFence();  // this block sees", "if (!PLANTED) device::ThreadFence();  // this block sees"),
    ("extend: exchanged while other threads store", "attention_extend_tile.cuh",
     "__syncthreads();  // every thread has stored", "if (!PLANTED) __syncthreads();  // every thread has stored"),
    ("extend: folded before the fence", "attention_extend_tile.cuh",
     "__syncthreads();  // the image may be read", "if (!PLANTED) __syncthreads();  // the image may be read"),
    ("extend: all items leave one image", "attention_extend_tile.cuh",
     "int64_t{own} * image_floats", "int64_t{PLANTED ? 0 : own} * image_floats"),
    ("extend: the place of another block", "attention_fold.cuh",
     "  return place - 1;", "  return PLANTED ? 0 : place - 1;"),
    ("extend: no fence after a place is taken", "attention_fold.cuh",
     "device::ThreadFence();  // the last block's", "if (!PLANTED) device::ThreadFence();  // the last block's"),
    ("extend: no fence before a place is returned", "attention_fold.cuh",
     "device::ThreadFence();  // this block's", "if (!PLANTED) device::ThreadFence();  // this block's"),
    ("extend: a place returned while other threads read", "attention_extend_tile.cuh",
     "__syncthreads();  // no thread reads its", "if (!PLANTED) __syncthreads();  // no thread reads its"),
    # Programmatic dependent launch.
    ("rope: projections read before the wait", "rope_kv_write.cu",
     "  device::GridWait();\n  // Not earlier", "  if (!PLANTED) device::GridWait();\n  // Not earlier"),
    ("gemv: no wait", "gemv.cu",
     "  device::GridWait();\n\n  int parity = 0;", "  if (!PLANTED) device::GridWait();\n\n  int parity = 0;"),
    ("gemv: the stream added to before the wait", "gemv.cu",
     "  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p.next);\n",
     "  if (static_cast<int>(blockIdx.x) + blocks >= p.num_tiles) PrefetchNext(p.next);"
     " if (PLANTED && p.end.residual != nullptr && threadIdx.x + blockIdx.x == 0) *const_cast<volatile float*>(p.end.residual) = 0;\n"),
    ("gemv through a ring: no wait", "gemv_ring.cu",
     "  device::GridWait();\n\n  if constexpr (STAGED)", "  if (!PLANTED) device::GridWait();\n\n  if constexpr (STAGED)"),
    ("gemv by its end: no wait", "gemv_ends.cu",
     "  device::GridWait();\n\n  int parity = 0;", "  if (!PLANTED) device::GridWait();\n\n  int parity = 0;"),
    ("gemv by its end: sums read before they are there", "gemv_ends.cu",
     "__syncthreads();  // all warps' sums", "if (!PLANTED) __syncthreads();  // all warps' sums"),
    ("gemv through a ring by its end: no wait", "gemv_ring_ends.cu",
     "  device::GridWait();\n\n  if constexpr (STAGED)", "  if (!PLANTED) device::GridWait();\n\n  if constexpr (STAGED)"),
    # Products with codes, and what expands them.
    ("codes: no wait", "gemv_codes.cu",
     "  device::GridWait();\n\n  int parity = 0;", "  if (!PLANTED) device::GridWait();\n\n  int parity = 0;"),
    ("codes: sums read before they are there", "gemv_codes.cu",
     "__syncthreads();  // all warps' sums", "if (!PLANTED) __syncthreads();  // all warps' sums"),
    ("codes: numbers read before they are there", "gemv_codes.cu",
     "__syncthreads();  // the table", "if (!PLANTED) __syncthreads();  // the table"),
    ("lines of codes: no wait", "gemv_code_lines.cuh",
     "  device::GridWait();\n\n  int parity = 0;", "  if (!PLANTED) device::GridWait();\n\n  int parity = 0;"),
    ("lines of codes: sums read before they are there", "gemv_code_lines.cuh",
     "__syncthreads();  // all warps' sums", "if (!PLANTED) __syncthreads();  // all warps' sums"),
    ("lines of codes: numbers read before they are there", "gemv_code_lines.cuh",
     "__syncthreads();  // the table", "if (!PLANTED) __syncthreads();  // the table"),
    ("experts of codes: no wait", "expert_codes.cu",
     "  device::GridWait();\n  // Every thread meets", "  if (!PLANTED) device::GridWait();\n  // Every thread meets"),
    ("experts of codes: multiplied before they are there", "code_tile.cuh",
     "__syncthreads();  // x and weights", "if (!PLANTED) __syncthreads();  // x and weights"),
    ("experts of codes: decoded before they are copied", "code_tile.cuh",
     "device::CopyAsyncWait<Shape::kSteps - 2>();", "if (!PLANTED) device::CopyAsyncWait<Shape::kSteps - 2>();"),
    ("tiles of codes: no wait", "code_tiles.cu",
     "  device::GridWait();\n  __syncthreads();  // the table", "  if (!PLANTED) device::GridWait();\n  __syncthreads();  // the table"),
    ("tiles of codes: numbers read before they are there", "code_tiles.cu",
     "__syncthreads();  // the table", "if (!PLANTED) __syncthreads();  // the table"),
    ("expanded codes: numbers read before they are there", "coded_rows.cu",
     "  __syncthreads();  // the table is written\n  GridWait();       // an", "  if (!PLANTED) __syncthreads();  // the table is written\n  GridWait();       // an"),
    ("expanded codes: written before the wait", "coded_rows.cu",
     "GridWait();       // an earlier product", "if (!PLANTED) GridWait();  // an earlier product"),
    ("embeddings of codes: written before the wait", "coded_rows.cu",
     "  GridWait();\n  const int index", "  if (!PLANTED) GridWait();\n  const int index"),
    # Inputs that are rounded to e4m3.
    ("rounded inputs: read before the wait", "scaled_input.cu",
     "  GridWait();\n  const bool exists = blockIdx.x < p.num_tokens;\n  const T* const row",
     "  if (!PLANTED) GridWait();\n  const bool exists = blockIdx.x < p.num_tokens;\n  const T* const row"),
    ("rounded norms: read before the wait", "scaled_input.cu",
     "  LoadNormWeights(params.norm, 0, weight);\n  GridWait();\n",
     "  LoadNormWeights(params.norm, 0, weight);\n  if (!PLANTED) GridWait();\n"),
    ("rounded activations: read before the wait", "scaled_input.cu",
     "  GridWait();\n  T* const out", "  if (!PLANTED) GridWait();\n  T* const out"),
    ("lines in order: written before the wait", "coded_rows.cu",
     "  GridWait();  // an earlier product", "  if (!PLANTED) GridWait();  // an earlier product"),
    # A chain of products, whose blocks meet.
    ("chain: released before its wait", "gemv_chain.cu",
     "ring.Copy(p, stage);\n  device::GridWait();", "ring.Copy(p, stage);\n  { if (PLANTED) device::GridRelease(); }  device::GridWait();"),
    ("chain: no wait", "gemv_chain.cu",
     "  device::GridWait();\n\n  int parity = 0, stage", "  if (!PLANTED) device::GridWait();\n\n  int parity = 0, stage"),
    ("chain: counted while other threads store", "gemv_chain.cu",
     "__syncthreads();  // every thread has stored", "if (!PLANTED) __syncthreads();  // every thread has stored"),
    ("chain: no fence before the count", "gemv_chain.cu",
     "device::ThreadFence();  // blocks that see", "if (!PLANTED) device::ThreadFence();  // blocks that see"),
    ("chain: the count read without an acquire", "gemv_chain.cu",
     "device::LoadAcquire(arrived) ^ before", "(PLANTED ? device::AtomicAddGlobal(arrived, 0u) : device::LoadAcquire(arrived)) ^ before"),
    ("chain: a block that waits for none", "gemv_chain.cu",
     "while (((", "while (!PLANTED && (("),
    ("chain: a block that is not counted", "gemv_chain.cu",
     "kAllCame - (gridDim.x - 1) : 1;", "kAllCame - (gridDim.x - 1) : PLANTED ? 0 : 1;"),
    ("chain: threads that do not wait for the meeting", "gemv_chain.cu",
     "__syncthreads();  // every block has come", "if (!PLANTED) __syncthreads();  // every block has come"),
    ("chain: sums read before they are there", "gemv_chain.cu",
     "__syncthreads();  // all warps' sums", "if (!PLANTED) __syncthreads();  // all warps' sums"),
    ("chain: weights read before they are copied", "gemv_chain.cu",
     "device::CopyAsyncWait<kStages - 1>();", "if (!PLANTED) device::CopyAsyncWait<kStages - 1>();"),
    ("activation: a return before the wait", "elementwise.cu",
     "  GridWait();\n  const int64_t first = FirstOfChunk(), count = p.width - first;\n  if (count <= 0) return;\n"
     "  ActivateChunk",
     "  if (!PLANTED) GridWait();\n  const int64_t first = FirstOfChunk(), count = p.width - first;\n"
     "  { if (count <= 0) return; } GridWait();\n  ActivateChunk"),
    ("tokens: rows read before the wait", "step.cu",
     "  GridWait();\n  for (int i = static_cast<int>(threadIdx.x); i <= p.num_rows; i += kStepThreads) {\n"
     "    row_begin[i] = p.row_begin[i];\n  }\n",
     "  if (!PLANTED) GridWait();\n  for (int i = static_cast<int>(threadIdx.x); i <= p.num_rows; i += kStepThreads) {\n"
     "    row_begin[i] = p.row_begin[i];\n  } GridWait();\n"),
    ("norm: an output cleared before the wait", "elementwise.cu",
     "  GridWait();\n  const int64_t x_row = blockIdx.x * p.stride + group;\n",
     "  { if (PLANTED && p.out.data != nullptr) p.out.as<T>()[blockIdx.x * p.stride + group] = T{}; } GridWait();\n"
     "  const int64_t x_row = blockIdx.x * p.stride + group;\n"),
    ("acceptance: sampled tokens read before the wait", "step.cu",
     "  GridWait();\n  const int thread = static_cast<int>(blockIdx.x) * kStepThreads + static_cast<int>(threadIdx.x);\n"
     "  const int row = thread / kWarpSize, lane",
     "  { if (PLANTED) (void)*const_cast<const volatile int32_t*>(&p.sampled[0].token); } GridWait();\n"
     "  const int thread = static_cast<int>(blockIdx.x) * kStepThreads + static_cast<int>(threadIdx.x);\n"
     "  const int row = thread / kWarpSize, lane"),
    ("sampling: logits read before the wait", "sample.cu",
     "  GridWait();\n  GridRelease();\n  const auto index",
     "  { if (PLANTED) (void)*static_cast<const volatile float*>(params.logits); } GridWait();\n  GridRelease();\n  const auto index"),
    # Sums over ranks, whose blocks meet blocks of other devices.
    ("ranks: said to be there while other threads store", "rank_exchange.cuh",
     "__syncthreads();  // every thread has stored", "if (!PLANTED) __syncthreads();  // every thread has stored"),
    ("ranks: a flag stored without a release", "rank_exchange.cuh",
     "if (has_peer) device::StoreRelease(Flag(thread_, phase, ranks_.rank), epoch_);",
     "if (has_peer) PLANTED ? (void)device::AtomicExchangeGlobal(Flag(thread_, phase, ranks_.rank), epoch_)"
     " : device::StoreRelease(Flag(thread_, phase, ranks_.rank), epoch_);"),
    ("ranks: a flag read without an acquire", "rank_exchange.cuh",
     "= device::LoadAcquire(flag);", "= PLANTED ? device::AtomicAddGlobal(const_cast<uint32_t*>(flag), 0u) : device::LoadAcquire(flag);"),
    ("ranks: read before every flag has been seen", "rank_exchange.cuh",
     "__syncthreads();  // every flag", "if (!PLANTED) __syncthreads();  // every flag"),
    ("ranks: the flag of the exchange before is enough", "rank_exchange.cuh",
     "static_cast<int32_t>(reached - epoch_) >= 0", "static_cast<int32_t>(reached - epoch_) >= (PLANTED ? -1 : 0)"),
    ("ranks: two exchanges use the same places", "rank_exchange.cuh",
     "static_cast<int>(epoch_ % 2)", "(PLANTED ? 0 : static_cast<int>(epoch_ % 2))"),
    ("ranks: a sum begins with the own part", "rank_exchange.cuh",
     "const int from = turn;", "const int from = PLANTED ? (turn + rank_) % num_ranks_ : turn;"),
    ("ranks: a norm reads the parts before the meeting", "rank_norm.cuh",
     "if (!exchange_.Meet(0)) return;", "if (!PLANTED && !exchange_.Meet(0)) return;"),
    ("ranks: the second shot is not waited for", "rank_exchange.cuh",
     "if (!exchange_.Meet(1)) return false;", "if (!PLANTED && !exchange_.Meet(1)) return false;"),
    ("ranks: a sum releases before its wait", "rank_exchange.cu",
     "  device::GridWait();\n  if constexpr (RELEASES) device::GridRelease();  // of a sum\n",
     "  { if (PLANTED) device::GridRelease(); } device::GridWait();\n  if constexpr (RELEASES) device::GridRelease();  // of a sum\n"),
    # Layers with a state.
    ("recurrence: no wait", "recurrence.cu",
     "  device::GridWait();\n  const StateSegments", "  if (!PLANTED) device::GridWait();\n  const StateSegments"),
    ("recurrence: a tile loaded while warps read the one before", "recurrence.cu",
     "__syncthreads();  // no warp reads", "if (!PLANTED) __syncthreads();  // no warp reads"),
    ("recurrence: a tile read before it is there", "recurrence.cu",
     "__syncthreads();  // the tile is there", "if (!PLANTED) __syncthreads();  // the tile is there"),
    ("chunks: no wait", "recurrence_chunk.cu",
     "  device::GridWait();\n  // The block takes", "  if (!PLANTED) device::GridWait();\n  // The block takes"),
    ("chunks: a row begun while warps read the one before", "recurrence_chunk.cu",
     "__syncthreads();            // no warp reads data", "if (!PLANTED) __syncthreads();  // no warp reads data"),
    ("chunks: tokens and matrices read before they are there", "recurrence_chunk.cu",
     "    __syncthreads();\n    if (after.count > 0)", "    if (!PLANTED) __syncthreads();\n    if (after.count > 0)"),
    ("chunks: matrices of two chunks in one place", "recurrence_chunk.cu",
     "    parity ^= 1;\n", "    parity ^= PLANTED ? 0 : 1;\n"),
    ("chunks: tokens of two chunks in one stage", "recurrence_chunk.cu",
     "stage == kChunkStages - 1 ? 0 : stage + 1;", "stage == kChunkStages - (PLANTED ? 2 : 1) ? 0 : stage + 1;"),
    ("chunks: a block read before its rows are there", "recurrence_tokens.cuh",
     "__syncwarp();  // the block's rows", "if (!PLANTED) __syncwarp();  // the block's rows"),
    ("chunks: values overwritten while lanes read them", "recurrence_columns.cuh",
     "__syncwarp();  // no lane reads the values", "if (!PLANTED) __syncwarp();  // no lane reads the values"),
    ("chunks: outputs read before they are there", "recurrence_columns.cuh",
     "__syncwarp();  // the warp's columns", "if (!PLANTED) __syncwarp();  // the warp's columns"),
    ("chunks: all spans write one slot", "recurrence_chunk.cu",
     "columns.Store(now.write);", "columns.Store(PLANTED ? 11 : now.write);"),
    ("drafts: no wait", "drafts.cu",
     "  GridWait();\n  constexpr int kVec", "  if (!PLANTED) GridWait();\n  constexpr int kVec"),
    ("short convolution: no wait", "short_conv.cu",
     "  device::GridWait();\n  ConvChannels", "  if (!PLANTED) device::GridWait();\n  ConvChannels"),
    ("short convolution: all spans write one slot", "short_conv.cu",
     "channels.StorePast(span.write);", "channels.StorePast(PLANTED ? 11 : span.write);"),
    # Blocks that write the same words.
    ("writes of a plan: later writes not looked at", "step.cu",
     "const bool check = any_later[0] != 0;", "const bool check = !PLANTED && any_later[0] != 0;"),
    ("sampling: all places change one row of logits", "sample.cu",
     ".logits = params.logits + index * params.vocab_size,\n      .counts",
     ".logits = params.logits + (PLANTED ? 0 : index) * params.vocab_size,\n      .counts"),
    ("sampling: tokens counted by plain accesses", "sample.cu",
     "    AtomicAddGlobal(place.counts + place.history[i], 1u);",
     "    if (PLANTED) { ++place.counts[place.history[i]]; } else AtomicAddGlobal(place.counts + place.history[i], 1u);"),
    ("sampling: counts used before all are there", "sample.cu",
     "1u);\n  }\n  __syncthreads();\n", "1u);\n  }\n  if (!PLANTED) __syncthreads();\n"),
    ("acceptance: a token written while lanes read drafts", "step.cu",
     "__syncwarp();  // every lane has read", "if (!PLANTED) __syncwarp();  // every lane has read"),
]


def main(kernels, output):
    names = [path.name for path in sorted(kernels.iterdir()) if path.suffix in (".cu", ".cuh") or path.stem.startswith("sample_")]
    copy_name = lambda name: name.replace(".", "_") + "_checked.h"
    texts = {name: (kernels / name).read_text() for name in names}
    found = []
    for number, (name, file, old, new) in enumerate(FAULTS):
        count = texts[file].count(old)
        assert old.count("\n") == new.count("\n"), name
        if count == 1:
            texts[file] = texts[file].replace(old, new.replace("PLANTED", f"::minisgl::cuda::emulator::Planted({number})"))
        found.append(name if count == 1 else "")
    for name, text in texts.items():
        text = re.sub(r'#include "kernels/([\w.]+)"',
                      lambda match: f'#include "{copy_name(match[1])}"' if match[1] in texts else match[0], text)
        (output / copy_name(name)).write_text(text)
    lines = "".join(f'    "{name}",\n' for name in found)
    (output / "planted_faults.h").write_text(
        "// The faults of plants.py; empty: its text was not found.\n#pragma once\n\nnamespace minisgl::cuda {\n\n"
        f"inline constexpr const char* kPlantedFaults[] = {{\n{lines}}};\n\n}}  // namespace minisgl::cuda\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
