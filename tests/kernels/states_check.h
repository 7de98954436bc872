// Layers with a state, for the tests of their kernels: made-up convolutions and recurrences, rows
// that cut a sequence, and the oracle's results. Arrays are made by the caller, on the emulator or
// on a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel_check.h"
#include "minisgl/ops.h"
#include "state_rows.h"

namespace minisgl::cuda {

inline constexpr int32_t kStateSlots = 12;

// Rows of one, two and three segments, from nothing and from slots, some shorter than a
// convolution, some longer than a tile.
inline StateRows MixedStateRows() {
  StateRows rows;
  rows.Add(3, -1, 2);
  rows.Continue(4, 6);
  rows.Add(1, 0, 3);
  rows.Add(1, 1, 4);
  rows.Continue(1, 7);
  rows.Continue(1, 8);
  rows.Add(1, -1, 5);
  rows.Add(37, 1, 9);
  rows.Continue(16, 10);
  return rows;
}

// One token: `gap` elements, then the factor of x, that of the output, and x.
struct ConvScene {
  DType dtype = DType::kBF16;
  int64_t width = 8;
  int32_t length = 4;
  bool factors = false, bias = false, silu = true;
  int64_t gap = 0;

  int64_t stride() const { return 3 * width + gap; }
  int64_t slot_floats() const { return (length - 1) * width; }
  int64_t out_width() const { return width; }
  std::string name() const {
    return std::string(DTypeName(dtype)) + " " + std::to_string(width) + " channels, " +
           std::to_string(length) + " weights";
  }
  std::vector<float> Inputs(int64_t num_tokens) const {
    return RoundedTo(dtype, RandomFloats(num_tokens * stride(), 21));
  }
  std::vector<float> Weights() const { return RandomFloats(width * length, 22); }
  std::vector<float> Bias() const { return RandomFloats(width, 23); }
  std::vector<float> Slots() const { return RandomFloats(kStateSlots * slot_floats(), 41, 0.5); }
  // `inputs`: of the first token of `segments`.
  ShortConvParams Params(ConstActivationPtr inputs, const float* weight, const float* bias_values,
                         int64_t num_tokens) const {
    const auto at = [&](int64_t count) {
      return ConstActivationPtr(
          ActivationPtr(const_cast<void*>(inputs.data), inputs.dtype).At(count));
    };
    return {.x = at(gap + 2 * width),
            .x_factor = factors ? at(gap) : ConstActivationPtr(),
            .out_factor = factors ? at(gap + width) : ConstActivationPtr(),
            .stride = stride(),
            .weight = weight,
            .bias = bias ? bias_values : nullptr,
            .states = nullptr,
            .out = nullptr,
            .segments = {},
            .num_tokens = num_tokens,
            .width = width,
            .length = length,
            .silu = silu};
  }
};

// One token: queries, keys, values, `gap` elements.
struct RecurrenceScene {
  RecurrenceKind kind = RecurrenceKind::kDelta;
  DType dtype = DType::kBF16;
  int32_t num_heads = 2, num_groups = 1, key_dim = 8, value_dim = 8;
  int64_t gap = 0;
  bool by_chunks = false;  // long rows; otherwise every row by steps (LaunchRecurrence)
  // The scale of scalars. With 100 many decays are 0 or 1, and many gains 0 or gain_factor.
  float scalar_scale = 1;
  bool clears = false;  // kDelta: 16 of every 32 tokens leave nothing of the state

  int64_t stride() const { return 2 * num_groups * key_dim + num_heads * value_dim + gap; }
  int64_t scalar_stride() const { return 2 * num_heads + 1; }
  int64_t slot_floats() const { return RecurrenceStateFloats(num_heads, key_dim, value_dim); }
  int64_t out_width() const { return int64_t{num_heads} * value_dim; }
  std::string name() const {
    return std::string(DTypeName(dtype)) +
           (kind == RecurrenceKind::kDelta ? " delta " : " mamba2 ") + std::to_string(num_heads) +
           "/" + std::to_string(num_groups) + " heads of " + std::to_string(key_dim) + "x" +
           std::to_string(value_dim) + (by_chunks ? " by chunks" : "");
  }
  std::vector<float> Inputs(int64_t num_tokens) const {
    return RoundedTo(dtype,
                     RandomFloats(num_tokens * stride(), 31, 1 / std::sqrt(double(key_dim))));
  }
  std::vector<float> Scalars(int64_t num_tokens) const {
    std::vector<float> scalars = RandomFloats(num_tokens * scalar_stride(), 32, scalar_scale);
    for (int64_t t = 0; clears && t < num_tokens; ++t) {
      if (t % 32 < 16) std::fill_n(scalars.begin() + t * scalar_stride(), num_heads, 1e4f);
    }
    return scalars;
  }
  // [H] each: the bias of decays, their rates, and the factors of values.
  std::vector<float> Vectors() const {
    std::vector<float> vectors = RandomFloats(3 * num_heads, 33);
    for (int32_t i = 0; i < num_heads; ++i)
      vectors[num_heads + i] = std::abs(vectors[num_heads + i]);
    return vectors;
  }
  std::vector<float> Slots() const {
    std::vector<float> slots = RandomFloats(kStateSlots * slot_floats(), 41, 0.5);
    ClearFillColumns(key_dim, value_dim, &slots);
    return slots;
  }
  RecurrenceParams Params(ConstActivationPtr inputs, const float* scalars, const float* vectors,
                          int64_t num_tokens) const {
    const auto at = [&](int64_t count) {
      return ConstActivationPtr(
          ActivationPtr(const_cast<void*>(inputs.data), inputs.dtype).At(count));
    };
    const int64_t keys = int64_t{num_groups} * key_dim;
    return {.kind = kind,
            .query = at(0),
            .key = at(keys),
            .value = at(2 * keys),
            .stride = stride(),
            .decay = scalars,
            .gain = scalars + num_heads,
            .scalar_stride = scalar_stride(),
            .decay_scale = num_heads == 3 ? 0.7f : 1.0f,
            .decay_bias = vectors,
            .decay_rate = vectors + num_heads,
            .skip = kind == RecurrenceKind::kMamba2 ? vectors + 2 * num_heads : nullptr,
            .gain_factor = num_heads == 3 ? 2.0f : 1.0f,
            .step_min = 0.1f,
            .step_max = 2.0f,
            .states = nullptr,
            .out = nullptr,
            .segments = {},
            .num_tokens = num_tokens,
            .num_heads = num_heads,
            .num_groups = num_groups,
            .key_dim = key_dim,
            .value_dim = value_dim};
  }
};

struct StateResults {
  std::vector<float> out, states;
};

// On the host, in f32.
inline StateResults OracleOf(const ConvScene& scene, const StateRows& rows) {
  const int64_t num_tokens = rows.num_tokens();
  StateResults results = {std::vector<float>(num_tokens * scene.width), scene.Slots()};
  const std::vector<float> inputs = scene.Inputs(num_tokens);
  const std::vector<float> weight = scene.Weights(), bias = scene.Bias();
  ShortConvParams params = scene.Params(inputs.data(), weight.data(), bias.data(), num_tokens);
  params.states = results.states.data();
  params.out = results.out.data();
  params.segments = rows.view();
  MakeNaiveOps()->ShortConv(params);
  return results;
}
inline StateResults OracleOf(const RecurrenceScene& scene, const StateRows& rows) {
  const int64_t num_tokens = rows.num_tokens();
  StateResults results = {std::vector<float>(num_tokens * scene.out_width()), scene.Slots()};
  const std::vector<float> inputs = scene.Inputs(num_tokens), scalars = scene.Scalars(num_tokens);
  const std::vector<float> vectors = scene.Vectors();
  RecurrenceParams params = scene.Params(inputs.data(), scalars.data(), vectors.data(), num_tokens);
  params.states = results.states.data();
  params.out = results.out.data();
  params.segments = rows.view();
  MakeNaiveOps()->Recurrence(params);
  return results;
}

// The error of sums of up to 256 terms in f32, and of what they add up to over the tokens of a row.
inline constexpr double kSumsError = 0x1.0p-16;
// By chunks operands of products are two parts of `dtype`: u^2 is left of each, twice as much where
// both are split, in three products one behind the other. Terms are at most twice a sum here.
inline double ChunksError(DType dtype) {
  const double u = UnitRoundoff(dtype);
  return kSumsError + 12 * u * u;
}

// `out` may have more tokens than the oracle's: those of padding.
inline void ExpectOracle(const StateResults& actual, const StateResults& expected, DType dtype,
                         const std::string& what, double error = kSumsError) {
  const auto sums = [&](double value) { return error * (1 + std::abs(value)); };
  std::vector<float> out = actual.out;
  out.resize(expected.out.size());
  ExpectWithin(
      out, expected.out,
      [&](size_t i) {
        return sums(expected.out[i]) + RoundingError(dtype, expected.out[i]) * 1.01;
      },
      what);
  ExpectWithin(
      actual.states, expected.states, [&](size_t i) { return sums(expected.states[i]); },
      what + ", states");
  for (size_t i = expected.out.size(); i < actual.out.size(); ++i) {
    ASSERT_TRUE(std::isnan(actual.out[i])) << what << ": padding is written";
  }
}

// Spans around the lengths of chunks and of blocks in them, some of which are short within a long
// row; between rows that go by steps.
inline StateRows ChunkedStateRows() {
  StateRows rows;
  rows.Add(1, 0, 2);
  rows.Add(16, -1, 3);
  rows.Add(65, 1, 4);
  rows.Add(15, 0, 5);
  rows.Add(17, -1, 6);
  rows.Continue(32, 7);
  rows.Continue(3, 8);
  rows.Continue(33, 9);
  rows.Add(31, 1, 10);
  return rows;
}

inline std::vector<ConvScene> ConvScenes(DType dtype) {
  std::vector<ConvScene> scenes;
  for (const int64_t width : {1, 7, 8, 250, 512, 520}) {
    for (const int32_t length : {2, 3, 4, kConvLengthMax}) {
      const bool all = width % 2 == 1 || length == 3;
      scenes.push_back({dtype, width, length, all, all, !all || length == 4, width == 250 ? 3 : 0});
    }
  }
  return scenes;
}

inline std::vector<RecurrenceScene> RecurrenceScenes(DType dtype) {
  std::vector<RecurrenceScene> scenes;
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    scenes.push_back({kind, dtype, 4, 2, 32, 48, 0});
    scenes.push_back({kind, dtype, 3, 3, 7, 5, 3});
    scenes.push_back({kind, dtype, 2, 1, 129, 33, 1});
    scenes.push_back({kind, dtype, 1, 1, 1, 16, 0});
    scenes.push_back({kind, dtype, 2, 2, 128, 64, 8});
    scenes.push_back({kind, dtype, 1, 1, 256, 8, 0});
  }
  return scenes;
}

// Sizes of the models that tests run, and those at the limits of the kernel's tiles.
inline std::vector<RecurrenceScene> ChunkScenes(DType dtype) {
  std::vector<RecurrenceScene> scenes;
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    scenes.push_back({kind, dtype, 2, 1, 16, 16, 0});
    scenes.push_back({kind, dtype, 3, 3, 6, 10, 3});
    scenes.push_back({kind, dtype, 2, 2, 34, 34, 0});
    scenes.push_back({kind, dtype, 3, 1, 16, 72, 8, false, 100});
    scenes.push_back({kind, dtype, 1, 1, 128, 16, 0});
    scenes.push_back({kind, dtype, 1, 1, 200, 16, 0});
  }
  // Large keys, so that errors of decays show.
  scenes.push_back({RecurrenceKind::kDelta, dtype, 2, 1, 1, 16, 0, false, 1, true});
  for (RecurrenceScene& scene : scenes) scene.by_chunks = true;
  return scenes;
}

}  // namespace minisgl::cuda
