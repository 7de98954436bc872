// See rank_collectives.h.
#include "cpu/rank_collectives.h"

#include <algorithm>
#include <span>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

// Elements that a thread sums at a time: some microseconds of work.
constexpr int64_t kSumElements = 8192;
// Shares begin at cache lines, which no two ranks then write.
constexpr int64_t kLineFloats = 16;

// Replaces elements [begin, end) of each of `parts` by their sum.
void SumParts(std::span<void* const> parts, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 256;
  float sums[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    std::copy_n(static_cast<const float*>(parts[0]) + at, count, sums);
    for (const void* part : parts.subspan(1)) {
      const float* const addends = static_cast<const float*>(part) + at;
      for (int64_t i = 0; i < count; ++i) sums[i] += addends[i];
    }
    for (void* part : parts) std::copy_n(sums, count, static_cast<float*>(part) + at);
  }
}

}  // namespace

void SumOverRanks(const HostRank& rank, const AllReduceParams& params, ThreadPool* pool) {
  float* const x = params.x.f32();
  const int64_t count = params.count;
  MINISGL_CHECK(rank.rendezvous != nullptr, "a sum over the ranks of one");
  const std::span<void* const> parts = rank.rendezvous->Meet(rank.index, x);
  const int64_t lines = CeilDiv(count, kLineFloats);
  const int64_t begin = std::min(count, lines * rank.index / rank.count() * kLineFloats);
  const int64_t end = std::min(count, lines * (rank.index + 1) / rank.count() * kLineFloats);
  pool->ParallelFor(CeilDiv(end - begin, kSumElements), [&](int64_t chunk, int) {
    const int64_t first = begin + chunk * kSumElements;
    SumParts(parts, first, std::min(end, first + kSumElements));
  });
  rank.rendezvous->Meet(rank.index, nullptr);
}

void GatherFromRanks(const HostRank& rank, const GatherColumnsParams& params, ThreadPool* pool) {
  MINISGL_CHECK(rank.rendezvous != nullptr, "columns of the ranks of one");
  auto* const out = static_cast<float*>(rank.rendezvous->Meet(rank.index, params.out)[0]);
  pool->ParallelFor(params.num_tokens, [&](int64_t token, int) {
    std::copy_n(params.x + token * params.width, params.width,
                out + token * params.out_stride + params.first);
  });
  rank.rendezvous->Meet(rank.index, nullptr);
}

}  // namespace minisgl::cpu
