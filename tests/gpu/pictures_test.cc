// Pictures on the device: attention within segments and the rows of pictures against the oracle,
// and answers of prompts with pictures.
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/device_picture_scene.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "kernels/paged_attention.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

using GpuPicturesTest = GpuTest;

struct GpuSegments {
  int32_t num_heads, head_dim;
  std::vector<int32_t> begin;
};

// Windows of 64 tokens, a whole picture, and short and odd segments.
std::vector<GpuSegments> AllSegments() {
  std::vector<GpuSegments> all = {{2, 64, {0, 70}}, {3, 24, {0, 1, 5, 66}}, {1, 33, {0, 9}}};
  if (IsSlow()) return all;
  std::vector<int32_t> windows = {0};
  for (int32_t i = 0; i < 200; ++i) windows.push_back(windows.back() + 64 - i % 3);
  all.push_back({16, 80, windows});
  for (const int32_t head_dim : {64, 72, 88, 96, 128}) all.push_back({4, head_dim, {0, 1000}});
  return all;
}

TEST_F(GpuPicturesTest, SegmentAttentionMatchesTheOracle) {
  for (const DType dtype : kHalfTypes) {
    const auto ops = Make({.activation_dtype = dtype});
    for (const GpuSegments& s : AllSegments()) {
      const int64_t count = int64_t{s.begin.back()} * s.num_heads * s.head_dim;
      const std::string name = fmt::format("{} H {} E {} T {}", DTypeName(dtype), s.num_heads,
                                           s.head_dim, s.begin.back());
      const auto q = RandomFloats(count, 1), k = RandomFloats(count, 2), v = RandomFloats(count, 3);
      const GpuArray device_q(ops.get(), dtype, q), device_k(ops.get(), dtype, k),
          device_v(ops.get(), dtype, v);
      GpuArray out(ops.get(), static_cast<size_t>(count) * DTypeBytes(dtype));
      SegmentAttentionParams params = {.q = device_q.ptr(dtype),
                                       .k = device_k.ptr(dtype),
                                       .v = device_v.ptr(dtype),
                                       .out = out.ptr(dtype),
                                       .segment_begin = s.begin.data(),
                                       .num_segments = static_cast<int32_t>(s.begin.size()) - 1,
                                       .num_heads = s.num_heads,
                                       .head_dim = s.head_dim,
                                       .scale = 2 / std::sqrt(static_cast<float>(s.head_dim))};
      const auto bytes = RunTwice(&out, name, [&] { ops->SegmentAttention(params); });
      const auto own_q = RoundedTo(dtype, q), own_k = RoundedTo(dtype, k);
      auto own_v = RoundedTo(dtype, v);
      std::vector<float> expected(static_cast<size_t>(count)), magnitude = expected;
      params.q = own_q.data();
      params.k = own_k.data();
      params.v = own_v.data();
      params.out = expected.data();
      MakeNaiveOps()->SegmentAttention(params);
      for (float& value : own_v) value = std::abs(value);
      params.out = magnitude.data();
      MakeNaiveOps()->SegmentAttention(params);
      ExpectWithin(
          FloatsOf(dtype, bytes), expected,
          [&](size_t i) {
            return AttentionBound(dtype, 16.0 * s.head_dim, s.begin.back(), expected[i],
                                  magnitude[i]);
          },
          name);
    }
  }
}

// Token by token, up to a token whose two most likely candidates are close.
void ExpectPicturesAgree(const std::vector<RowResult>& actual, const std::vector<RowResult>& wanted,
                         const std::string& what) {
  constexpr double kTolerance = 0.03;
  ASSERT_EQ(actual.size(), wanted.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto& ranks = wanted[i].top_logprobs;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_NEAR(actual[i].top_logprobs[rank].logprob, ranks[rank].logprob, kTolerance)
          << what << " token " << i << " rank " << rank;
    }
    if (ranks[0].logprob - ranks[1].logprob < 2 * kTolerance) return;
    ASSERT_EQ(actual[i].token, wanted[i].token) << what << " token " << i;
  }
}

TEST_F(GpuPicturesTest, AnswersAgreeWithTheOracle) {
  MarkSlow("models on the emulator");
  struct Family {
    const char* model;
    PictureAttention attention;
    int32_t num_deepstack;
  };
  for (const Family& family : {Family{"llava", PictureAttention::kCausal, 0},
                               Family{"qwen3_vl", PictureAttention::kCausal, 2},
                               Family{"qwen3_5", PictureAttention::kCausal, 0},
                               Family{"gemma3", PictureAttention::kAllLayers, 0},
                               Family{"gemma4_text", PictureAttention::kWindowLayers, 0}}) {
    SCOPED_TRACE(family.model);
    const auto model = MakeGpuArchitecture(family.model);
    if (model == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
    const PictureScene scene(model->config, model->checkpoint.get(), family.attention,
                             family.num_deepstack);
    std::vector<Request> requests = {scene.MakeRequest(1, 24, 3, {{4, 1, 12}}),
                                     scene.MakeRequest(2, 9, 3, {})};
    if (!IsSlow()) requests.push_back(scene.MakeRequest(3, 90, 8, {{4, 1, 12}, {20, 2, 60}}));
    const SceneSettings settings = {.max_prefill_tokens = 64, .encoder_cache = 80};
    const ScheduledRun expected = scene.OnCpu(settings, MakeNaiveOps(DType::kF16), requests);
    for (const int32_t graphs : {0, 4}) {
      if (IsSlow() && graphs > 0) continue;
      SceneSettings own = settings;
      own.graph_max_rows = graphs;
      const ScheduledRun run =
          scene.OnDevice(own, Make({.activation_dtype = DType::kF16}), requests);
      for (const auto& [id, results] : expected.answers) {
        ExpectPicturesAgree(run.answers.at(id), results, fmt::format("request {}", id));
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
