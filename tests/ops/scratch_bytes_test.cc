// CpuScratchBytes against the bytes that operations use: never less, and not much more.
#include <algorithm>
#include <numeric>

#include "cpu/attention_plan.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

const WeightFormat kInt8 = {DType::kF32, Quantization::kInt8};
constexpr int64_t kOutputs = 5;  // nothing depends on them
constexpr int32_t kHeads = 8, kKvHeads = 2, kHeadDim = 80;

CpuScratchLimits SmallLimits(int num_threads, const WeightFormat& format) {
  return {.num_threads = num_threads,
          .weight_format = format,
          .max_tokens = 300,
          .max_logit_rows = 5,
          .vocab_size = 1200,
          .max_inputs = 700,
          .num_heads = kHeads,
          .num_kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .num_chosen = 3,
          .expert_inputs = 500,
          .head_inputs = 90};
}

// The values do not matter.
std::vector<float> Floats(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), 0.5f);
}

void MultiplyAll(Ops& ops, const CpuScratchLimits& limits) {
  const std::vector<float> w = Floats(kOutputs * limits.max_inputs);
  const std::vector<float> x = Floats(limits.max_tokens * limits.max_inputs);
  const TensorView view = View(w, kOutputs, limits.max_inputs);
  const Matrix weight = ops.PackMatrix({&view, 1}, limits.weight_format).value();
  OpOutput out(limits.max_tokens * kOutputs);
  ops.Linear(
      {.x = x.data(), .weight = &weight, .out = out.data(), .num_tokens = limits.max_tokens});
}

// `per_choice`: the second matrix of the experts, otherwise the first. All tokens choose the same.
void MultiplyExperts(Ops& ops, const CpuScratchLimits& limits, bool per_choice) {
  const int64_t num_in = per_choice ? limits.expert_inputs : limits.max_inputs;
  const int64_t num_choices = limits.max_tokens * limits.num_chosen;
  const std::vector<float> w = Floats(kOutputs * num_in);
  const std::vector<float> x = Floats((per_choice ? num_choices : limits.max_tokens) * num_in);
  const std::vector<std::vector<WeightTensor>> experts(static_cast<size_t>(limits.num_chosen),
                                                       {View(w, kOutputs, num_in)});
  const ExpertMatrices weights = ops.PackExperts(experts, limits.weight_format).value();
  std::vector<int32_t> chosen(static_cast<size_t>(num_choices));
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int32_t>(i % 3);
  OpOutput out(num_choices * kOutputs);
  ops.ExpertLinear({x.data(), &weights, nullptr, chosen.data(), out.data(), limits.max_tokens,
                    static_cast<int32_t>(limits.num_chosen), per_choice});
}

void MultiplyHeads(Ops& ops, const CpuScratchLimits& limits) {
  const std::vector<float> w = Floats(kOutputs * limits.head_inputs);
  const std::vector<float> x = Floats(limits.max_tokens * kHeads * limits.head_inputs);
  const std::vector<std::vector<WeightTensor>> heads(kHeads,
                                                     {View(w, kOutputs, limits.head_inputs)});
  const HeadMatrices weights = ops.PackExperts(heads, limits.weight_format.dtype).value();
  OpOutput out(limits.max_tokens * kHeads * kOutputs);
  ops.HeadLinear(
      {.x = x.data(), .weights = &weights, .out = out.data(), .num_tokens = limits.max_tokens});
}

// A long prompt's last tokens beside rows that decode.
void Attend(Ops& ops) {
  constexpr int32_t kPageSize = 16, kNumPages = 40, kRows = 4;
  constexpr int64_t kPageFloats = int64_t{2} * kPageSize * kKvHeads * kHeadDim;
  const std::vector<int32_t> table_row = {0, 0, 0, 0}, row_begin = {0, 100, 101, 102, 103},
                             kv_len = {600, 600, 500, 10};
  std::vector<int32_t> pages(kNumPages);
  std::iota(pages.begin(), pages.end(), 0);
  const std::vector<float> storage(kNumPages * kPageFloats, 0.5f);
  const std::vector<float> qkv =
      Floats(row_begin.back() * int64_t{kHeads + 2 * kKvHeads} * kHeadDim);
  OpOutput out(row_begin.back() * int64_t{kHeads} * kHeadDim);
  AttentionParams params = {};
  params.qkv = qkv.data();
  params.out = out.data();
  params.kv = {.base = {const_cast<float*>(storage.data()), DType::kF32},
               .page_stride = kPageFloats,
               .slot_stride = kHeadDim,
               .head_stride = int64_t{kPageSize} * kHeadDim,
               .v_offset = kPageFloats / 2,
               .page_size = kPageSize};
  params.page_table = pages.data();
  params.page_table_stride = kNumPages;
  params.table_row = table_row.data();
  params.row_begin = row_begin.data();
  params.kv_len = kv_len.data();
  params.num_rows = kRows;
  params.num_tokens = row_begin.back();
  params.num_heads = kHeads;
  params.num_kv_heads = kKvHeads;
  params.head_dim = kHeadDim;
  params.scale = 0.1f;
  ops.Attention(params);
}

// With every option that takes memory.
void SampleAll(Ops& ops, const CpuScratchLimits& limits) {
  const SamplingParams sampling = {
      .temperature = 1.0, .top_k = 900, .top_p = 0.9, .presence_penalty = 0.5, .num_logprobs = 20};
  const std::vector<int32_t> history = {1, 2, 3};
  const auto count = static_cast<size_t>(limits.max_logit_rows);
  std::vector<float> logits = RandomFloats(limits.max_logit_rows * limits.vocab_size, 6);
  const std::vector<const SamplingParams*> samplings(count, &sampling);
  const std::vector<const int32_t*> histories(count, history.data());
  const std::vector<int32_t> prompt_len(count, 1), history_len(count, 3);
  std::vector<RowResult> results(count);
  ops.Sample({logits.data(), limits.max_logit_rows, limits.vocab_size, samplings.data(),
              histories.data(), prompt_len.data(), history_len.data(), results.data()});
  for (const RowResult& result : results) EXPECT_EQ(result.top_logprobs.size(), 20u);
}

uint64_t ScratchBytesOfAll(CpuTarget target, const CpuScratchLimits& limits) {
  const auto ops = MakeOps(CpuTargetName(target), limits.num_threads);
  EXPECT_EQ(ops->scratch_bytes(), 0u);
  SampleAll(*ops, limits);
  MultiplyAll(*ops, limits);
  MultiplyExperts(*ops, limits, false);
  MultiplyExperts(*ops, limits, true);
  MultiplyHeads(*ops, limits);
  Attend(*ops);
  return ops->scratch_bytes();
}

TEST(CpuScratchTest, OperationsTakeNoMoreThanIsCounted) {
  std::vector<WeightFormat> formats(std::begin(kWeightFormats), std::end(kWeightFormats));
  formats.push_back({DType::kBF16, Quantization::kInt4});  // whose rows of x are converted
  formats.push_back({DType::kF16, Quantization::kInt4});
  formats.push_back({DType::kBF16, Quantization::kInt8});  // codes for tiles
  std::vector<CpuTarget> targets = AvailableCpuTargets();
  targets.push_back(CpuTarget::kAmxStandIn);
  for (const WeightFormat& format : formats) {
    for (const int num_threads : {1, 3}) {
      const CpuScratchLimits limits = SmallLimits(num_threads, format);
      const uint64_t counted = CpuScratchBytes(limits).value();
      for (const CpuTarget target : targets) {
        EXPECT_LE(ScratchBytesOfAll(target, limits), counted)
            << fmt::format("{}, {}, {} threads", CpuTargetName(target), format.Name(), num_threads);
      }
    }
  }
}

// With one thread no item is divided; the last target reads int8 in the widest form.
TEST(CpuScratchTest, LittleIsCountedThatOneThreadDoesNotTake) {
  constexpr uint64_t kStateBytes = kSplitStateFloatsMax * sizeof(float);
  for (const WeightFormat& format : {WeightFormat(DType::kF32), kInt8}) {
    const CpuScratchLimits limits = SmallLimits(1, format);
    const uint64_t counted = CpuScratchBytes(limits).value() - kStateBytes;
    EXPECT_GE(ScratchBytesOfAll(AvailableCpuTargets().back(), limits), counted / 10 * 9)
        << format.Name();
  }
}

// Most of it is the rows of the widest product.
TEST(CpuScratchTest, RowsOfTheWidestProductAreCounted) {
  CpuScratchLimits limits = SmallLimits(1, DType::kBF16);
  limits.num_chosen = limits.head_inputs = 0;
  const uint64_t few = CpuScratchBytes(limits).value();
  limits.max_tokens += 1000;
  EXPECT_EQ(CpuScratchBytes(limits).value() - few, 1000u * 23 * 64)
      << "700 pairs of bytes, in an odd number of lines";
  limits.weight_format = DType::kF32;
  EXPECT_LT(CpuScratchBytes(limits).value(), few) << "floats are read where they are";
}

// Rows of heads count, too, if there are matrices of heads.
TEST(CpuScratchTest, RowsOfHeadsAreCounted) {
  CpuScratchLimits limits = SmallLimits(1, DType::kBF16);
  limits.num_chosen = 0;
  limits.max_inputs = 90;
  const uint64_t with = CpuScratchBytes(limits).value();
  limits.head_inputs = 0;
  EXPECT_EQ(with - CpuScratchBytes(limits).value(), 300u * (kHeads - 1) * 3 * 64)
      << "90 pairs of bytes, in an odd number of lines";
}

// The output head of int4 is int8, and its rows are converted to the form of int8.
TEST(CpuScratchTest, RowsOfTheHeadOfInt4AreCounted) {
  CpuScratchLimits limits = SmallLimits(1, {DType::kF32, Quantization::kInt4});
  const uint64_t few = CpuScratchBytes(limits).value();
  limits.max_logit_rows += 1000;
  CpuScratchLimits head = SmallLimits(1, kInt8);
  head.max_tokens = limits.max_logit_rows;
  const uint64_t counted = CpuScratchBytes(limits).value();
  EXPECT_GE(counted - few, 1000u * 22 * 64) << "700 inputs, in blocks of at least 64 bytes";
  for (const CpuTarget target : AvailableCpuTargets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    MultiplyAll(*ops, head);
    EXPECT_LE(ops->scratch_bytes(), counted) << CpuTargetName(target);
  }
}

TEST(CpuScratchTest, NoSizeOverflows) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  constexpr int32_t kHuge32 = std::numeric_limits<int32_t>::max();
  for (int64_t CpuScratchLimits::*const size :
       {&CpuScratchLimits::max_tokens, &CpuScratchLimits::max_logit_rows,
        &CpuScratchLimits::vocab_size, &CpuScratchLimits::max_inputs,
        &CpuScratchLimits::expert_inputs, &CpuScratchLimits::num_chosen,
        &CpuScratchLimits::head_inputs}) {
    CpuScratchLimits limits = SmallLimits(1024, kInt8);
    limits.*size = kHuge;
    EXPECT_FALSE(CpuScratchBytes(limits).has_value());
    limits.*size = kHuge32;
    EXPECT_GT(CpuScratchBytes(limits).value_or(kHuge), uint64_t{1} << 25);
  }
  CpuScratchLimits heads = SmallLimits(1, DType::kF32);
  heads.num_heads = heads.head_dim = kHuge32;
  heads.num_kv_heads = 1;
  EXPECT_FALSE(CpuScratchBytes(heads).has_value());
}

}  // namespace
}  // namespace minisgl::cpu
