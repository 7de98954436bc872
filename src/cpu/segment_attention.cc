// See segment_attention.h. First the keys and values of each head are arranged in tiles, by all
// threads; then an item is some queries of one head, which pass over the tiles of their segment.
// No result depends on the division.
#include "cpu/segment_attention.h"

#include <algorithm>

#include "minisgl/base/checked_math.h"
#include "minisgl/ops.h"

namespace minisgl::cpu {
namespace {

// Consecutive tokens of a segment: the keys of a tile, or the queries of an item.
struct TokenRun {
  int64_t first, count;
  int64_t first_tile, num_keys;  // of its segment
};

// Cuts each segment into runs of at most `length` tokens.
std::vector<TokenRun> CutSegments(const SegmentAttentionParams& p, int64_t length) {
  std::vector<TokenRun> runs;
  int64_t tile = 0;
  for (int32_t i = 0; i < p.num_segments; ++i) {
    const int64_t begin = p.segment_begin[i], end = p.segment_begin[i + 1];
    for (int64_t first = begin; first < end; first += length) {
      runs.push_back({first, std::min(length, end - first), tile, end - begin});
    }
    tile += CeilDiv(end - begin, kSegmentTileKeys);
  }
  return runs;
}

}  // namespace

uint64_t SegmentScratch::bytes() const {
  uint64_t sum = tiles.bytes();
  for (const FloatBuffer& one : threads) sum += one.bytes();
  return sum;
}

void RunSegmentAttention(const SegmentAttentionParams& p, const SegmentKernels& kernels,
                         ThreadPool* pool, SegmentScratch* scratch) {
  const int64_t head_dim = p.head_dim, width = int64_t{p.num_heads} * head_dim;
  const std::vector<TokenRun> tiles = CutSegments(p, kSegmentTileKeys);
  const std::vector<TokenRun> queries = CutSegments(p, kSegmentQueriesMax);
  const auto num_tiles = std::ssize(tiles), num_items = std::ssize(queries);
  const int64_t tile_floats = SegmentTileFloats(head_dim);
  float* const arranged =
      scratch->tiles.Reserve(static_cast<size_t>(p.num_heads * num_tiles * tile_floats));
  scratch->threads.resize(static_cast<size_t>(pool->num_threads()));
  pool->ParallelForRanges(p.num_heads * num_tiles, [&](int64_t i, int) {
    const int64_t head = i / num_tiles;
    const TokenRun& run = tiles[static_cast<size_t>(i % num_tiles)];
    kernels.arrange({.k = p.k.f32() + run.first * width + head * head_dim,
                     .v = p.v.f32() + run.first * width + head * head_dim,
                     .k_stride = width,
                     .v_stride = width,
                     .count = run.count,
                     .head_dim = head_dim},
                    arranged + i * tile_floats);
  });
  pool->ParallelFor(p.num_heads * num_items, [&](int64_t i, int thread) {
    const int64_t head = i / num_items;
    const TokenRun& run = queries[static_cast<size_t>(i % num_items)];
    kernels.attend({.q = p.q.f32() + run.first * width + head * head_dim,
                    .out = p.out.f32() + run.first * width + head * head_dim,
                    .q_stride = width,
                    .out_stride = width,
                    .num_rows = run.count,
                    .tiles = arranged + (head * num_tiles + run.first_tile) * tile_floats,
                    .num_keys = run.num_keys,
                    .head_dim = head_dim,
                    .scale = p.scale},
                   scratch->threads[static_cast<size_t>(thread)].Reserve(
                       static_cast<size_t>(SegmentScratchFloats(head_dim))));
  });
}

}  // namespace minisgl::cpu

namespace minisgl {

std::optional<uint64_t> CpuSegmentAttentionBytes(int num_threads, int64_t num_tokens,
                                                 int64_t num_segments, int64_t num_heads,
                                                 int64_t head_dim) {
  constexpr int64_t kSizeMax = int64_t{1} << 31;
  for (const int64_t size : {num_tokens, num_segments, num_heads, head_dim}) {
    if (size < 0 || size > kSizeMax) return std::nullopt;
  }
  if (num_heads * head_dim > kSizeMax) return std::nullopt;
  const int64_t tiles = num_tokens / cpu::kSegmentTileKeys + num_segments;
  const auto bytes = [](int64_t count, int64_t floats) {
    return CheckedMul(static_cast<uint64_t>(count), static_cast<uint64_t>(floats) * sizeof(float));
  };
  const auto of_tiles = bytes(tiles * num_heads, cpu::SegmentTileFloats(head_dim));
  const auto of_threads = bytes(num_threads, cpu::SegmentScratchFloats(head_dim));
  return of_tiles && of_threads ? CheckedAdd(*of_tiles, *of_threads) : std::nullopt;
}

}  // namespace minisgl
