// Layers with a state: against the oracle and against values computed by hand; every cut of a
// sequence into rows gives the same bits, and slots that a step neither reads nor writes stay.
#include "op_check.h"
#include "state_rows.h"

namespace minisgl::cpu {
namespace {

constexpr int32_t kSlots = 9;

// Rows of one, two and three segments, from nothing and from slots, some shorter than a
// convolution.
StateRows MixedRows() {
  StateRows rows;
  rows.Add(3, -1, 2);
  rows.Continue(4, 6);
  rows.Add(1, 0, 3);
  rows.Add(1, 1, 4);
  rows.Continue(1, 7);
  rows.Continue(1, 8);
  rows.Add(1, -1, 5);
  return rows;
}
constexpr int64_t kMixedTokens = 12;

struct Conv {
  int64_t width;
  int32_t length;
  bool factors, bias, silu;
  int64_t stride;
  std::vector<float> x, weight, bias_values;

  explicit Conv(int64_t channels, int32_t taps, bool all, int64_t num_tokens)
      : width(channels),
        length(taps),
        factors(all),
        bias(all),
        silu(!all || taps == 4),
        stride(3 * channels + 1),
        x(RandomFloats(num_tokens * stride, 21)),
        weight(RandomFloats(channels * taps, 22)),
        bias_values(RandomFloats(channels, 23)) {}

  int64_t SlotFloats() const { return (length - 1) * width; }
  std::vector<float> RandomSlots() const { return RandomFloats(kSlots * SlotFloats(), 41, 0.5); }
  // Runs over tokens [first, ...), which `rows` cut.
  void Run(Ops& ops, const StateRows& rows, int64_t first, float* states, float* out) const {
    const float* const at = x.data() + first * stride;
    ops.ShortConv({.x = at + 2 * width,
                   .x_factor = factors ? ConstActivationPtr(at) : nullptr,
                   .out_factor = factors ? ConstActivationPtr(at + width) : nullptr,
                   .stride = stride,
                   .weight = weight.data(),
                   .bias = bias ? bias_values.data() : nullptr,
                   .states = states,
                   .out = out,
                   .segments = rows.view(),
                   .num_tokens = rows.num_tokens(),
                   .width = width,
                   .length = length,
                   .silu = silu});
  }
};

struct RecurrenceCase {
  RecurrenceKind kind;
  int32_t num_heads, num_groups, key_dim, value_dim;
  int64_t stride, scalar_stride;
  std::vector<float> x, scalars, bias, rate, skip;

  RecurrenceCase(RecurrenceKind of, int32_t heads, int32_t groups, int32_t keys, int32_t values,
                 int64_t num_tokens)
      : kind(of),
        num_heads(heads),
        num_groups(groups),
        key_dim(keys),
        value_dim(values),
        stride(2 * groups * keys + heads * values + 3),
        scalar_stride(2 * heads + 1),
        x(RandomFloats(num_tokens * stride, 31, 1 / std::sqrt(double(keys)))),
        scalars(RandomFloats(num_tokens * scalar_stride, 32)),
        bias(RandomFloats(heads, 33)),
        rate(Absolute(RandomFloats(heads, 34))),
        skip(RandomFloats(heads, 35)) {}

  int64_t SlotFloats() const { return RecurrenceStateFloats(num_heads, key_dim, value_dim); }
  std::vector<float> RandomSlots() const {
    std::vector<float> slots = RandomFloats(kSlots * SlotFloats(), 41, 0.5);
    ClearFillColumns(key_dim, value_dim, &slots);
    return slots;
  }
  void Run(Ops& ops, const StateRows& rows, int64_t first, float* states, float* out) const {
    const float* const at = x.data() + first * stride;
    const float* const scalar = scalars.data() + first * scalar_stride;
    ops.Recurrence({.kind = kind,
                    .query = at,
                    .key = at + num_groups * key_dim,
                    .value = at + 2 * num_groups * key_dim,
                    .stride = stride,
                    .decay = scalar,
                    .gain = scalar + num_heads,
                    .scalar_stride = scalar_stride,
                    .decay_scale = num_heads == 3 ? 0.7f : 1.0f,
                    .decay_bias = bias.data(),
                    .decay_rate = rate.data(),
                    .skip = kind == RecurrenceKind::kMamba2 ? skip.data() : nullptr,
                    .gain_factor = num_heads == 3 ? 2.0f : 1.0f,
                    .step_min = 0.1f,
                    .step_max = 2.0f,
                    .states = states,
                    .out = out,
                    .segments = rows.view(),
                    .num_tokens = rows.num_tokens(),
                    .num_heads = num_heads,
                    .num_groups = num_groups,
                    .key_dim = key_dim,
                    .value_dim = value_dim});
  }
};

std::vector<Conv> Convs(int64_t num_tokens) {
  std::vector<Conv> all;
  for (const int64_t width : kWidths) {
    for (const int32_t length : {2, 3, 4, kConvLengthMax}) {
      all.emplace_back(width, length, width % 2 == 1, num_tokens);
    }
  }
  return all;
}

std::vector<RecurrenceCase> AllHeads(int64_t num_tokens) {
  std::vector<RecurrenceCase> all;
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    all.emplace_back(kind, 4, 2, 32, 48, num_tokens);
    all.emplace_back(kind, 3, 3, 7, 5, num_tokens);
    all.emplace_back(kind, 2, 1, 129, 33, num_tokens);
    all.emplace_back(kind, 1, 1, 1, 16, num_tokens);
  }
  return all;
}

// Runs MixedRows on the oracle and on the CPU, and compares outputs and every slot.
template <typename Layer>
void ExpectOracle(const Layer& layer, int64_t out_width, double bound) {
  const StateRows rows = MixedRows();
  const std::vector<float> before = layer.RandomSlots();
  std::vector<float> expected_states = before;
  OpOutput expected(kMixedTokens * out_width);
  layer.Run(*MakeNaiveOps(), rows, 0, expected_states.data(), expected.data());
  for (const auto& ops : AllCpuOps()) {
    std::vector<float> states = before;
    OpOutput out(kMixedTokens * out_width);
    layer.Run(*ops, rows, 0, states.data(), out.data());
    ExpectClose(
        out.values(), expected.values(),
        [&](size_t i) { return bound * (1 + std::abs(expected.data()[i])); }, ops->Name());
    ExpectClose(
        states, expected_states,
        [&](size_t i) { return bound * (1 + std::abs(expected_states[i])); },
        ops->Name() + " states");
    EXPECT_TRUE(out.GuardsIntact());
    const auto end = before.begin() + 2 * layer.SlotFloats();
    EXPECT_TRUE(std::equal(before.begin(), end, states.begin())) << "slots that are only read";
  }
}

TEST(StatesTest, ConvolutionsAgreeWithOracle) {
  for (const Conv& conv : Convs(kMixedTokens)) {
    ExpectOracle(conv, conv.width, 64 * kEpsilon);
    if (HasFatalFailure()) return;
  }
}

TEST(StatesTest, RecurrencesAgreeWithOracle) {
  for (const RecurrenceCase& heads : AllHeads(kMixedTokens)) {
    ExpectOracle(heads, heads.num_heads * heads.value_dim, 512 * kEpsilon);
    if (HasFatalFailure()) return;
  }
}

// Cuts of kCutTokens tokens. Slots alternate.
constexpr int64_t kCutTokens = 150;
const std::vector<std::vector<int32_t>> kCuts = {{149, 1},       {1, 149},
                                                 {64, 64, 22},   {1, 1, 1, 1, 146},
                                                 {75, 2, 3, 70}, std::vector<int32_t>(150, 1)};

template <typename Layer>
void ExpectSameBitsForEveryCut(const Layer& layer, int64_t out_width) {
  for (const auto& ops : AllCpuOps()) {
    const int64_t slot = layer.SlotFloats();
    std::vector<float> whole_states(static_cast<size_t>(3 * slot), NAN);
    std::vector<float> whole(static_cast<size_t>(kCutTokens * out_width));
    StateRows one;
    one.Add(77, -1, 2);
    one.Continue(kCutTokens - 77, 0);
    layer.Run(*ops, one, 0, whole_states.data(), whole.data());
    const std::vector<float> state(whole_states.begin(), whole_states.begin() + slot);
    const std::vector<float> marked(whole_states.begin() + 2 * slot, whole_states.end());
    for (const auto& cut : kCuts) {
      std::vector<float> states(static_cast<size_t>(2 * slot), NAN);
      std::vector<float> out(whole.size());
      int64_t done = 0;
      int32_t read = -1;
      for (const int32_t count : cut) {
        StateRows rows;
        rows.Add(count, read, read == 0 ? 1 : 0);
        layer.Run(*ops, rows, done, states.data(), out.data() + done * out_width);
        done += count;
        read = read == 0 ? 1 : 0;
        if (done == 77) {
          ExpectSameBits({states.begin() + read * slot, states.begin() + (read + 1) * slot}, marked,
                         ops->Name() + " mark");
        }
      }
      ExpectSameBits(out, whole, ops->Name());
      ExpectSameBits({states.begin() + read * slot, states.begin() + (read + 1) * slot}, state,
                     ops->Name() + " state");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(StatesTest, EveryCutOfASequenceGivesTheSameConvolution) {
  for (const int64_t width : {5, 64}) {
    ExpectSameBitsForEveryCut(Conv(width, 4, width == 5, kCutTokens), width);
    ExpectSameBitsForEveryCut(Conv(width, 3, width != 5, kCutTokens), width);
  }
}

TEST(StatesTest, EveryCutOfASequenceGivesTheSameRecurrence) {
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    ExpectSameBitsForEveryCut(RecurrenceCase(kind, 3, 1, 19, 21, kCutTokens), 3 * 21);
    ExpectSameBitsForEveryCut(RecurrenceCase(kind, 4, 2, 32, 32, kCutTokens), 4 * 32);
  }
}

TEST(StatesTest, AConvolutionIsTheWeightedSumOfTheLastInputs) {
  // u = x * factor = {2, 6, 12}; weights 10 (two before), 1 (one before), 0.5 (itself).
  const std::vector<float> x = {1, 2, 3}, x_factor = {2, 3, 4}, out_factor = {1, 2, 1};
  const std::vector<float> weight = {10, 1, 0.5f};
  for (const auto& ops : OracleAndAllCpuOps()) {
    std::vector<float> states = {5, 7, 0, 0}, out(3);  // slot 0: the inputs 5, then 7
    StateRows rows;
    rows.Add(3, 0, 1);
    ops->ShortConv({.x = x.data(),
                    .x_factor = x_factor.data(),
                    .out_factor = out_factor.data(),
                    .stride = 1,
                    .weight = weight.data(),
                    .bias = nullptr,
                    .states = states.data(),
                    .out = out.data(),
                    .segments = rows.view(),
                    .num_tokens = 3,
                    .width = 1,
                    .length = 3,
                    .silu = false});
    EXPECT_EQ(out, (std::vector<float>{58, 150, 32})) << ops->Name();
    EXPECT_EQ(states, (std::vector<float>{5, 7, 6, 12})) << ops->Name();
  }
}

TEST(StatesTest, ADeltaRuleReplacesWhatItsKeyFinds) {
  // With no decay (a rate of 0) and a gain of 1, the state maps k = (1, 0) to the last value.
  for (const auto& ops : OracleAndAllCpuOps()) {
    const std::vector<float> x = {1, 0, 1, 0, 3, /**/ 1, 0, 1, 0, 5, /**/ 0, 1, 0, 1, 9};
    const std::vector<float> scalars = {0, 1000, 0, 1000, 0, 1000}, zero = {0};
    std::vector<float> states(2 * 16), out(3);
    StateRows rows;
    rows.Add(3, -1, 0);
    ops->Recurrence({.kind = RecurrenceKind::kDelta,
                     .query = x.data(),
                     .key = x.data() + 2,
                     .value = x.data() + 4,
                     .stride = 5,
                     .decay = scalars.data(),
                     .gain = scalars.data() + 1,
                     .scalar_stride = 2,
                     .decay_bias = zero.data(),
                     .decay_rate = zero.data(),
                     .skip = nullptr,
                     .states = states.data(),
                     .out = out.data(),
                     .segments = rows.view(),
                     .num_tokens = 3,
                     .num_heads = 1,
                     .num_groups = 1,
                     .key_dim = 2,
                     .value_dim = 1});
    EXPECT_EQ(out, (std::vector<float>{3, 5, 9})) << ops->Name();
    EXPECT_EQ(states[0], 5) << ops->Name();
    EXPECT_EQ(states[16], 9) << ops->Name();
  }
}

TEST(StatesTest, AStateSpaceStepIsWithinItsBounds) {
  // softplus(100) is 100, held to 2: the state is d x B = 2 * 3 * 5, and out is C S + skip x.
  for (const auto& ops : OracleAndAllCpuOps()) {
    const std::vector<float> x = {7, 5, 3}, decay = {100}, zero = {0}, skip = {0.5f};
    std::vector<float> states(16), out(1);
    StateRows rows;
    rows.Add(1, -1, 0);
    ops->Recurrence({.kind = RecurrenceKind::kMamba2,
                     .query = x.data(),
                     .key = x.data() + 1,
                     .value = x.data() + 2,
                     .stride = 3,
                     .decay = decay.data(),
                     .gain = nullptr,
                     .scalar_stride = 1,
                     .decay_bias = zero.data(),
                     .decay_rate = zero.data(),
                     .skip = skip.data(),
                     .step_min = 0,
                     .step_max = 2,
                     .states = states.data(),
                     .out = out.data(),
                     .segments = rows.view(),
                     .num_tokens = 1,
                     .num_heads = 1,
                     .num_groups = 1,
                     .key_dim = 1,
                     .value_dim = 1});
    EXPECT_EQ(states[0], 30) << ops->Name();
    EXPECT_EQ(out[0], 211.5f) << ops->Name();
  }
}

}  // namespace
}  // namespace minisgl::cpu
