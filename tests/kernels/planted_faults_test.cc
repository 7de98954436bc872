// Faults of plants.py in the real kernels, turned on one at a time: the checks of order find each,
// and name the kernel and the line.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "attention_check.h"
#include "chain_scene.h"
#include "codes_scene.h"
#include "emulator_check.h"
#include "engine/emulated_cuda.h"
#include "kernels/attention_arguments.h"
#include "kernels/rank_exchange.h"
#include "planted_faults.h"
#include "states_scene.h"

namespace minisgl::cuda {

void RunRankSums();  // rank_exchange_test.cc
void RunRankNorms();

namespace {

// A row whose keys are split over blocks, which merge their parts.
void RunSplitDecode() {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = {{1, 600}};
  c.num_decode_rows = 1;
  (void)PagedAttentionScene(c).Run();
}

// More works than blocks.
void RunManyWorks() {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 2;
  c.rows = {{1, 600}, {1, 300}};
  c.num_decode_rows = 2;
  KernelDevice device;
  device.context.num_multiprocessors = 1;
  (void)PagedAttentionScene(c).Run(false, &device);
}

// A group of rows that share a split, with splits of their own behind it.
void RunSplitGroup() {
  PagedAttentionCase c;
  c.num_heads = 8;
  c.num_kv_heads = 1;
  c.rows = {{1, 300}, {1, 310}, {1, 320}};
  c.num_decode_rows = 3;
  PagedAttentionScene scene(c);
  scene.Share({0, 1, 2}, kSplitKeysMin);
  scene.SetGroups({{{0, 1, 2}, 1}});
  KernelDevice device;
  (void)scene.Run(false, &device);
}

// A tile of drafts cut into items of a split each, so that blocks meet.
void RunMeetings() {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = {{2, 3 * kExtendSplitKeys}};
  KernelDevice device;
  (void)PagedAttentionScene(c).Run(false, &device);
}

// Two whole tiles of several splits: each block has a place for its folds.
void RunFolds() {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 2;
  c.rows = {{2, 2 * kExtendSplitKeys}};
  KernelDevice device;
  device.context.num_multiprocessors = 0;  // nothing is cut
  (void)PagedAttentionScene(c).Run(false, &device);
}

// Eight such tiles, and five places.
void RunPlacesAgain() {
  PagedAttentionCase c;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = std::vector<PagedAttentionRow>(8, {2, kExtendSplitKeys + 30});
  c.workspace_multiprocessors = 1;
  KernelDevice device;
  (void)PagedAttentionScene(c).Run(false, &device);
}

// The same with wide heads.
void RunWideMeetings() {
  PagedAttentionCase c;
  c.head_dim = 24;
  c.value_dim = 18;
  c.values_in_keys = true;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = {{2, 2 * kExtendSplitKeys}};
  KernelDevice device;
  (void)PagedAttentionScene(c).Run(false, &device);
}

// A row of two drafts: the first is what was sampled, the second is not.
void RunAcceptance() {
  constexpr auto kToken = static_cast<int32_t>(RowResult::Outcome::kToken);
  using Ints = std::vector<int32_t>;
  const DeviceArray<int32_t> table_row(Ints{0}), kv_len(Ints{4}), place_begin(Ints{0, 3});
  const DeviceArray<DeviceToken> sampled({{5, kToken, 0, 0}, {6, kToken, 0, 0}, {7, kToken, 0, 0}});
  DeviceArray<int32_t> token_pool(Ints{1, 2, 5, 9, 0, 0, 0, 0}), num_accepted(1);
  KernelDevice device;
  const AcceptTokensParams params = {.table_row = table_row.data(),
                                     .kv_len = kv_len.data(),
                                     .place_begin = place_begin.data(),
                                     .num_rows = 1,
                                     .sampled = sampled.data(),
                                     .token_pool = token_pool.data(),
                                     .token_pool_stride = 8,
                                     .num_accepted = num_accepted.data()};
  EXPECT_EQ(LaunchAcceptTokens(device.context, params), kCudaSuccess);
  EXPECT_EQ(num_accepted[0], 1);
}

// A state that is kept, and kept again from where it was put.
void RunKeptStates() {
  DeviceArray<float> states(std::vector<float>(3 * 8, 1.0f));
  const DeviceArray<KeptState> items(std::vector<KeptState>{{0, 1, -1, 0, 0}, {1, 2, -1, 0, 0}});
  KernelDevice device;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(LaunchKeepStates(device.context, {.states = {states.data(), DType::kF32},
                                                .width = 8,
                                                .items = items.data() + i,
                                                .num_items = 1,
                                                .num_accepted = nullptr}),
              kCudaSuccess);
  }
}

// Two writes of one step to the same place of a page table.
void RunOverlappingWrites() {
  const PageTableWrite write = {.table_row = 0, .first = 0, .count = 3, .offset = 0};
  const DeviceArray<PageTableWrite> writes({write, write});
  const DeviceArray<int32_t> pages(std::vector<int32_t>{1, 2, 3});
  DeviceArray<int32_t> table(4);
  KernelDevice device;
  const PlanWritesParams params = {.page_table_writes = writes.data(),
                                   .pages = pages.data(),
                                   .token_pool_writes = nullptr,
                                   .tokens = nullptr,
                                   .num_page_table_writes = 2,
                                   .num_token_pool_writes = 0,
                                   .page_table = table.data(),
                                   .page_table_stride = 4,
                                   .token_pool = nullptr,
                                   .token_pool_stride = 0};
  EXPECT_EQ(LaunchApplyPlanWrites(device.context, params), kCudaSuccess);
}

// Prompts, then steps that decode, one with drafts.
void RunEngine() {
  static const std::unique_ptr<TestModel> model = MakeEmulatedModel();
  EngineDriver engine(*model, {.max_running_requests = 4}, EmulatedCuda({}));
  std::vector<TestRow*> rows;
  for (int i = 0; i < 2; ++i) {
    rows.push_back(engine.AddRow(std::vector<TokenId>(5, 3 + i)));
    rows.back()->sampling.repetition_penalty = 1.1f;
    engine.ExtendAll(rows.back());
  }
  EXPECT_TRUE(engine.Step().ok());
  engine.ExtendAll(rows[0]);
  engine.ExtendWithDrafts(rows[1], std::vector<TokenId>{1, 2, 3});
  EXPECT_TRUE(engine.Step().ok());
}

// Gates and what they multiply, behind the kernel that writes them; most threads have no element.
void RunActivation() {
  DeviceOutput stream(DType::kF32, std::vector<float>(16, 1.0f));
  DeviceOutput gate_up(DType::kBF16, 16), out(DType::kBF16, 8);
  KernelDevice device;
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = stream.f32(),
                                        .weight = nullptr,
                                        .out = gate_up.ptr(),
                                        .num_tokens = 1,
                                        .width = 16,
                                        .eps = 0}),
            kCudaSuccess);
  EXPECT_EQ(LaunchActivate(device.context, {.gate_up = gate_up.ptr(),
                                            .out = out.ptr(),
                                            .num_tokens = 1,
                                            .width = 8,
                                            .activation = Activation::kSilu}),
            kCudaSuccess);
}

// A product of `num_out` rows, behind the kernel that writes its x.
void RunProduct(int64_t num_out, const std::function<void(LaunchContext*)>& change) {
  DeviceOutput stream(DType::kF32, std::vector<float>(64, 1.0f));
  DeviceOutput x(DType::kBF16, 64), out(DType::kBF16, num_out);
  const DeviceInput weight(DType::kBF16, std::vector<float>(num_out * 64, 1.0f));
  const Matrix matrix = {
      .num_out = num_out, .num_in = 64, .dtype = DType::kBF16, .storage = nullptr};
  KernelDevice device;
  change(&device.context);
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = stream.f32(),
                                        .weight = nullptr,
                                        .out = x.ptr(),
                                        .num_tokens = 1,
                                        .width = 64,
                                        .eps = 0}),
            kCudaSuccess);
  EXPECT_EQ(LaunchGemv(device.context,
                       {.linear = {.x = x.ptr(),
                                   .weight = &matrix,
                                   .bias = nullptr,
                                   .out = out.ptr(),
                                   .num_tokens = 1}},
                       weight.data()),
            kCudaSuccess);
}

// A sum over ranks on devices of their own, which lets the next kernel begin: that one may read
// before its wait what a kernel before the sum wrote.
void RunReleasedSum() {
  DeviceOutput stream(DType::kF32, std::vector<float>(64, 1.0f));
  DeviceOutput x(DType::kBF16, 64), sums(DType::kF32, std::vector<float>(64, 1.0f));
  const auto zeros = [](size_t count) { return std::vector<uint32_t>(count); };
  DeviceArray<uint32_t> piece(zeros(static_cast<size_t>(ExchangeBytes(1, 1)) / 4));
  DeviceArray<uint32_t> epochs(zeros(kExchangeBlocks)), alarm(zeros(kAlarmBytes / 4));
  RankExchange alone = {.epochs = epochs.data(),
                        .alarm = alarm.data(),
                        .wait_ns = int64_t{1'000'000'000'000},
                        .one_shot_bytes = 1024,
                        .on_distinct_devices = true};
  alone.pieces[0] = reinterpret_cast<std::byte*>(piece.data());
  KernelDevice device;
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = stream.f32(),
                                        .weight = nullptr,
                                        .out = x.ptr(),
                                        .num_tokens = 1,
                                        .width = 64,
                                        .eps = 0}),
            kCudaSuccess);
  EXPECT_EQ(LaunchAllReduce(device.context, {.x = sums.ptr(), .count = 64}, alone), kCudaSuccess);
  emulator::RunGrid({.grid = {1}, .block = {32}, .programmatic = true}, "next", [&] {
    (void)device::LoadVec<1>(x.ptr().as<uint16_t>() + threadIdx.x);
    device::GridWait();
  });
}

void RunRing() {
  RunProduct(8, [](LaunchContext* context) { context->ring_bytes_min = 0; });
}
void RunEnd() {
  RunProduct(8, [](LaunchContext* context) { context->product_ends = true; });
}
void RunRingEnd() {
  RunProduct(4096, [](LaunchContext* context) {
    context->ring_bytes_min = 0;
    context->product_ends = true;
  });
}

// Products of a matrix without whole lines, and of one with them.
void RunCodes() { RunCodesProduct(128, DType::kF32); }
void RunCodeLines() { RunCodesProduct(2048, DType::kF16); }

// A chain behind the kernel that writes what its first product reads, and in front of a kernel that
// reads before its wait what the one before the chain wrote. A thread that waits in vain is found
// soon.
void RunChain() {
  ChainScene scene({.num_tokens = 1, .attention = 64, .hidden = 40, .intermediate = 24, .qkv = 16});
  DeviceArray<uint32_t> arrived(std::vector<uint32_t>{0});
  DeviceOutput before(DType::kF32, std::vector<float>(64, 1.0f));
  KernelDevice device;
  device.context.num_multiprocessors = 2;
  emulator::Options options = emulator::GetOptions();
  options.atomics_max = 1 << 14;
  emulator::SetOptions(options);
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = before.f32(),
                                        .weight = nullptr,
                                        .out = scene.x(),
                                        .num_tokens = 1,
                                        .width = 64,
                                        .eps = 0}),
            kCudaSuccess);
  scene.RunAsChain(device.context, arrived.data());
  emulator::RunGrid({.grid = {1}, .block = {32}, .programmatic = true}, "next", [&] {
    (void)device::LoadVec<1>(scene.x().as<uint16_t>() + threadIdx.x);
    device::GridWait();
  });
}

// Two steps of each kind of layer, of which the second reads what the first wrote.
void RunStates() {
  const RecurrenceScene recurrence = {.key_dim = 8, .value_dim = 32};
  const ConvScene conv = {.width = 16};
  StateRows rows = MixedStateRows(), later;
  later.Add(20, 10, 0);
  const int64_t first = rows.num_tokens(), second = later.num_tokens();
  KernelDevice device;
  const auto run = [&](const auto& scene) {
    Sequence sequence(scene, first + second, scene.Slots());
    sequence.Run(scene, rows, 0, first, device.context);
    sequence.Run(scene, later, first, second, device.context);
    EXPECT_TRUE(device.api.StreamSynchronize(nullptr) == kCudaSuccess);
  };
  run(recurrence);
  run(conv);
}

// Rows by chunks, of which each of two blocks has two.
void RunChunks() {
  const RecurrenceScene scene = {.by_chunks = true};
  KernelDevice device;
  device.context.num_multiprocessors = 2;
  const StateRows rows = ChunkedStateRows();
  Sequence sequence(scene, rows.num_tokens(), scene.Slots());
  sequence.Run(scene, rows, 0, rows.num_tokens(), device.context);
  EXPECT_TRUE(device.api.StreamSynchronize(nullptr) == kCudaSuccess);
}

using Scene = void (*)();
struct Expected {
  Scene scene;
  std::vector<std::string> parts;  // of the message
};
// A model takes longer.
int NumOrders(Scene scene) { return scene == RunEngine ? 2 : emulator::kNumOrders; }

const std::string kNoOrder =
    "with no fence and atomic by that block, then atomic and fence by this";
const std::string kNoBarrier = "with no barrier in between";
const std::string kNotWritten = "which nothing in this block has written";
// What is read there: sums of 16 warps, twice, or the numbers of codes of 4 bits.
const std::string kSums = "the array of 8192 bytes";
const std::string kNumbers = "the array of 64 bytes";
const std::string kNoWait = "before GridWait: that kernel may still run";

const std::map<std::string, Expected>& ExpectedFaults() {
  static const std::map<std::string, Expected> faults = {
      {"decode: no fence before the count", {RunSplitDecode, {"AttentionArguments", kNoOrder}}},
      {"decode: no fence after the count", {RunSplitDecode, {"AttentionArguments", kNoOrder}}},
      {"decode: counted while other warps store",
       {RunSplitDecode, {"AttentionArguments", "with no "}}},
      {"decode: merged by lanes that have not met",
       {RunSplitDecode, {"AttentionArguments", kNoOrder}}},
      {"decode: counted by plain accesses", {RunSplitDecode, {"attention_decode", kNoOrder}}},
      {"decode: merged before the last part", {RunSplitDecode, {"AttentionArguments", kNoOrder}}},
      {"decode: the counter reset by every block", {RunSplitDecode, {"AtomicAddGlobal", kNoOrder}}},
      {"decode: all splits store one part", {RunSplitDecode, {"StoreVec", kNoOrder}}},
      {"decode: the plan read before the wait", {RunSplitDecode, {"DecodeKernel", kNoWait}}},
      {"decode: the newest key read before the wait",
       {RunEngine, {"AttentionArguments", "CopyAsync16", kNoWait}}},
      {"decode: the query read before the wait", {RunEngine, {"AttentionArguments", "GridWait"}}},
      {"rope: released before its wait", {RunEngine, {"AttentionArguments", kNoWait}}},
      {"decode: works taken by plain accesses", {RunManyWorks, {"attention_works", kNoOrder}}},
      {"decode: the counter of works reset too early",
       {RunManyWorks, {"attention_works", kNoOrder}}},
      {"extend: no fence before the exchange", {RunMeetings, {"AttentionArguments", kNoOrder}}},
      {"extend: no fence after the exchange", {RunMeetings, {"AttentionArguments", kNoOrder}}},
      // By the image, or before by the word in shared memory, as threads happen to run.
      {"extend: exchanged while other threads store",
       {RunMeetings, {"AttentionArguments", "with no "}}},
      {"extend: folded before the fence", {RunMeetings, {"AttentionArguments", "with no "}}},
      {"extend: all items leave one image", {RunMeetings, {"StoreVec", kNoOrder}}},
      {"extend: the place of another block", {RunFolds, {"StoreVec", kNoOrder}}},
      {"extend: no fence after a place is taken", {RunPlacesAgain, {"StoreVec", kNoOrder}}},
      {"extend: no fence before a place is returned", {RunPlacesAgain, {"StoreVec", kNoOrder}}},
      {"extend: a place returned while other threads read",
       {RunPlacesAgain, {"StoreVec", kNoOrder}}},
      {"wide: scores read before both halves are there",
       {RunWideMeetings, {"WideArguments", kNotWritten}}},
      {"wide: weights read before they are there",
       {RunWideMeetings, {"WideArguments", kNotWritten}}},
      {"wide: a fold's factors read before they are there",
       {RunWideMeetings, {"WideArguments", kNotWritten}}},
      {"wide: the plan read before the wait", {RunWideMeetings, {"WideArguments", kNoWait}}},
      {"rope: projections read before the wait", {RunEngine, {"RopeKernelParams", kNoWait}}},
      {"norm: an output cleared before the wait",
       {RunEngine, {"NormKernel", "writes byte", kNoWait}}},
      {"gemv: no wait", {RunEngine, {"GemvKernelParams", kNoWait}}},
      {"gemv through a ring: no wait", {RunRing, {"GemvRing", kNoWait}}},
      {"gemv by its end: no wait", {RunEnd, {"GemvEnd", kNoWait}}},
      {"gemv by its end: sums read before they are there", {RunEnd, {"gemv_parts", kNotWritten}}},
      {"gemv through a ring by its end: no wait", {RunRingEnd, {"GemvRingEnd", kNoWait}}},
      {"codes: no wait", {RunCodes, {"CodeLinesParams", kNoWait}}},
      {"codes: sums read before they are there", {RunCodes, {"CodeLinesParams", kSums}}},
      {"codes: numbers read before they are there", {RunCodes, {"CodeLinesParams", kNumbers}}},
      {"lines of codes: no wait", {RunCodeLines, {"CodeLinesParams", kNoWait}}},
      {"lines of codes: sums read before they are there",
       {RunCodeLines, {"CodeLinesParams", kSums}}},
      {"lines of codes: numbers read before they are there",
       {RunCodeLines, {"CodeLinesParams", kNumbers}}},
      {"experts of codes: no wait", {RunExpertCodes, {"ExpertCodesKernel", kNoWait}}},
      {"experts of codes: multiplied before they are there",
       {RunExpertCodes, {"ExpertCodesKernel", "the array of 16384 bytes"}}},
      {"experts of codes: decoded before they are copied", {RunExpertCodes, {"expert_codes"}}},
      {"expanded codes: numbers read before they are there",
       {RunExpandedCodes, {"ExpandKernel", kNumbers}}},
      {"expanded codes: written before the wait", {RunExpandedCodes, {"ExpandKernel", "GridWait"}}},
      {"embeddings of codes: written before the wait",
       {RunCodedEmbedding, {"CodedEmbeddingKernel", "GridWait"}}},
      {"tiles of codes: no wait", {RunCodeTiles, {"CodeTiles", kNoWait}}},
      {"tiles of codes: numbers read before they are there",
       {RunCodeTiles, {"CodeTiles", kNumbers}}},
      {"rounded inputs: read before the wait", {RunScaledInputs, {"ScaleInput", kNoWait}}},
      {"rounded norms: read before the wait", {RunScaledInputs, {"ScaledNorm", kNoWait}}},
      {"rounded activations: read before the wait", {RunScaledInputs, {"ScaledActivate", kNoWait}}},
      {"lines in order: written before the wait", {RunScaledInputs, {"PlainLines", "GridWait"}}},
      {"chain: released before its wait", {RunChain, {"next", kNoWait}}},
      {"chain: no wait", {RunChain, {"GemvChain", kNoWait}}},
      {"chain: counted while other threads store", {RunChain, {"GemvChain", "with no "}}},
      {"chain: no fence before the count", {RunChain, {"GemvChain", kNoOrder}}},
      {"chain: the count read without an acquire", {RunChain, {"GemvChain", kNoOrder}}},
      {"chain: a block that waits for none", {RunChain, {"GemvChain", kNoOrder}}},
      {"chain: a block that is not counted", {RunChain, {"waits for what does not come"}}},
      {"chain: threads that do not wait for the meeting", {RunChain, {"GemvChain", "with no "}}},
      {"chain: sums read before they are there", {RunChain, {"GemvChain", kSums}}},
      {"chain: weights read before they are copied", {RunChain, {"gemv_chain"}}},
      {"gemv: the stream added to before the wait", {RunEngine, {"GemvKernelParams", "GridWait"}}},
      {"activation: a return before the wait",
       {RunActivation, {"ActivateParams", "ended without GridWait"}}},
      {"tokens: rows read before the wait", {RunEngine, {"PrepareTokensKernel", kNoWait}}},
      {"acceptance: sampled tokens read before the wait",
       {RunEngine, {"AcceptTokensKernel", kNoWait}}},
      {"sampling: logits read before the wait", {RunEngine, {"SampleKernel", kNoWait}}},
      {"writes of a plan: later writes not looked at",
       {RunOverlappingWrites, {"PlanWritesKernel", kNoOrder}}},
      {"sampling: all places change one row of logits", {RunEngine, {"SampleParams", kNoOrder}}},
      {"sampling: tokens counted by plain accesses", {RunEngine, {"SampleParams", kNoBarrier}}},
      {"sampling: counts used before all are there", {RunEngine, {"SampleParams", kNoBarrier}}},
      {"ranks: said to be there while other threads store", {RunRankSums, {"with no "}}},
      {"ranks: a flag stored without a release", {RunRankSums, {"with no "}}},
      {"ranks: a flag read without an acquire", {RunRankSums, {"with no "}}},
      {"ranks: read before every flag has been seen", {RunRankSums, {"with no "}}},
      {"ranks: the flag of the exchange before is enough", {RunRankSums, {"with no "}}},
      {"ranks: two exchanges use the same places", {RunRankSums, {"with no "}}},
      {"ranks: a sum begins with the own part", {RunRankSums, {"ranks have different sums"}}},
      {"ranks: the second shot is not waited for", {RunRankSums, {"with no "}}},
      {"ranks: a norm reads the parts before the meeting", {RunRankNorms, {"with no "}}},
      {"ranks: a sum releases before its wait", {RunReleasedSum, {"next", kNoWait}}},
      {"recurrence: no wait", {RunStates, {"recurrence", "ended without GridWait"}}},
      {"recurrence: a tile loaded while warps read the one before",
       {RunStates, {"recurrence", kNoBarrier}}},
      {"recurrence: a tile read before it is there",
       {RunStates, {"recurrence", "which nothing in this block has written"}}},
      {"chunks: no wait", {RunChunks, {"recurrence_chunk", "ended without GridWait"}}},
      {"chunks: a row begun while warps read the one before",
       {RunChunks, {"recurrence_chunk", kNoBarrier}}},
      {"chunks: tokens and matrices read before they are there",
       {RunChunks, {"recurrence_chunk", kNotWritten}}},
      {"chunks: matrices of two chunks in one place",
       {RunChunks, {"recurrence_chunk", kNotWritten}}},
      // While it is copied or after it was read, as threads happen to run.
      {"chunks: tokens of two chunks in one stage", {RunChunks, {"recurrence_chunk"}}},
      {"chunks: a block read before its rows are there",
       {RunChunks, {"recurrence_tokens", kNotWritten}}},
      {"chunks: values overwritten while lanes read them",
       {RunChunks, {"recurrence_columns", kNoBarrier}}},
      {"chunks: outputs read before they are there",
       {RunChunks, {"recurrence_columns", kNoBarrier}}},
      {"chunks: all spans write one slot", {RunChunks, {"recurrence_columns", kNoOrder}}},
      {"drafts: no wait", {RunKeptStates, {"KeepKernelParams", "ended without GridWait"}}},
      {"short convolution: no wait", {RunStates, {"ConvKernelParams", "ended without GridWait"}}},
      {"short convolution: all spans write one slot", {RunStates, {"StoreVec", kNoOrder}}},
      {"acceptance: a token written while lanes read drafts",
       {RunAcceptance, {"AcceptTokensKernel", kNoBarrier}}},
  };
  return faults;
}

TEST(PlantedFaults, ScenesWithoutThemAreClean) {
  for (const Scene scene :
       {RunSplitDecode, RunManyWorks,    RunSplitGroup,  RunMeetings,      RunWideMeetings,
        RunFolds,       RunPlacesAgain,  RunAcceptance,  RunKeptStates,    RunOverlappingWrites,
        RunActivation,  RunRankSums,     RunRing,        RunStates,        RunChunks,
        RunCodes,       RunCodeLines,    RunExpertCodes, RunExpandedCodes, RunCodedEmbedding,
        RunCodeTiles,   RunScaledInputs, RunChain,       RunEngine}) {
    emulator::ForEachOrder(NumOrders(scene), [&](int order) {
      SCOPED_TRACE(order);
      EXPECT_NO_THROW(scene());
    });
  }
}

class PlantedFaultTest : public testing::TestWithParam<size_t> {};

TEST_P(PlantedFaultTest, IsFound) {
  const std::string name = kPlantedFaults[GetParam()];
  ASSERT_NE(name, "") << "the text that fault " << GetParam() << " of plants.py replaces is not "
                      << "in its source once: the kernel has changed";
  SCOPED_TRACE(name);
  const auto expected = ExpectedFaults().find(name);
  ASSERT_NE(expected, ExpectedFaults().end()) << "nothing is expected of it here";
  emulator::ForEachOrder(NumOrders(expected->second.scene), [&](int order) {
    SCOPED_TRACE(order);
    emulator::Options options = emulator::GetOptions();
    options.planted = static_cast<int>(GetParam());
    emulator::SetOptions(options);
    try {
      expected->second.scene();
      ADD_FAILURE() << "not found";
    } catch (const emulator::Fault& fault) {
      const std::string text = fault.what();
      for (const std::string& part : expected->second.parts) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    emulator::FinishKernels();
  });
}

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFaultTest,
                         testing::Range<size_t>(0, std::size(kPlantedFaults)));

}  // namespace
}  // namespace minisgl::cuda
