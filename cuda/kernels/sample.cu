// The next token of each place, computed on the device: the same rules as Sampler
// (src/cpu/sampler.h), with weights in 64-bit fixed point, so that no result depends on the order
// of threads.
//
// Two kernels; rows of at most kTilesAlone tiles use only the second. T: number of tiles of 256.
//
// SummarizeKernel  grid (blocks for each place, N), 256 threads, a warp for each tile; no shared
//   memory. Reads the logits once: 4 N V bytes. For each tile it stores the largest logit and, if
//   the sum over the row is needed, the sum of weights relative to it: about 20 operations for each
//   logit with the sum, 4 without. Summaries are stored in the first words of the place's counts:
//   12 N T bytes.
// SampleKernel  grid N, 512 threads, a block for each place. Shared memory: SharedBytes(V), 20
//   bytes for each tile and 34.5 KiB. Reads the summaries and clears them. Then
//   - bias, penalties, bans, a mask: 12 bytes for each token of history, V / 8 bytes of mask; the
//     tiles that they touch are summarised again (at most 4 V bytes, and as many stores);
//   - greedy, or only a temperature: one tile (1 KiB);
//   - top-k, top-p, min-p: a cut is found from the summaries (41 T steps). The tiles that reach it
//     are read twice (about k tiles for top-k, about a hundred for the nucleus of a peaked row),
//     and their logits above the cut are then in shared memory. Nearly flat rows, with more than
//     4096 logits above the cut, are read twice for a top-k or a top-p, and once for the draw;
//   - log-probabilities: 4 V bytes more, 1 KiB for each rank, and if logits were changed the
//     touched tiles read and written once.
//
// With N = 256 and V = 151,936 one read is 156 MB: 36 us at 90 % of 4.8 TB/s, 1 % of a step of 3.5
// ms. Greedy, temperature, top-k, and top-p of a peaked row need no more. A flat row's top-p reads
// four times, 4 %.
#include "kernels/kernels.h"
#include "kernels/sample_select.h"
#include "minisgl/base/random.h"

namespace minisgl::cuda {
namespace sample {
namespace {

inline constexpr int kSummarizeThreads = 256;
inline constexpr int kSummarizeWarps = kSummarizeThreads / kWarpSize;

// SampleKernel itself summarises a row of at most one tile for each warp: one read takes less time
// than a launch.
inline constexpr int kTilesAlone = kWarps;

// 2048 tiles have 40 KiB of summaries; together with the rest they fit the 99 KiB of the smallest
// devices.
inline constexpr int64_t kVocabMax = 2048 * kTileSize;
static_assert(kVocabMax == kSampleVocabMax);

// Words of the counts that a tile's summary occupies until SampleKernel has read it.
inline constexpr int kSummaryWords = 3;

MINISGL_HOST_DEVICE constexpr int NumTiles(int64_t vocab_size) {
  return static_cast<int>((vocab_size + kTileSize - 1) / kTileSize);
}

constexpr size_t SharedBytes(int64_t vocab_size) {
  const auto tiles = static_cast<size_t>(NumTiles(vocab_size));
  const auto rounded = [](size_t bytes) { return (bytes + 15) / 16 * 16; };
  return rounded(4 * tiles) * 3 + rounded(8 * tiles) + 8 * kScratchWords + 8 * kNumBins + 16 +
         8 * kBufferSize;
}

MINISGL_DEVICE bool HasTopK(const DeviceSampling& sampling, int32_t vocab_size) {
  return sampling.top_k > 0 && sampling.top_k < vocab_size;
}

// True if only one token can remain.
MINISGL_DEVICE bool IsGreedy(const DeviceSampling& sampling) {
  return !(sampling.temperature > 0) || sampling.top_k == 1;
}

// True if the sum over the whole row is needed.
MINISGL_DEVICE bool WantsSum(const DeviceSampling& sampling, int32_t vocab_size) {
  if (IsGreedy(sampling) || HasTopK(sampling, vocab_size)) return false;
  return sampling.top_p < 1 || !(sampling.min_p > 0);
}

MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kSummarizeThreads, 6)
    SummarizeKernel(DeviceSampleParams params) {
  GridWait();
  GridRelease();
  const auto place = static_cast<int64_t>(blockIdx.y);
  const DeviceSampling& sampling = params.places[place];
  const Row row(params.logits + place * params.vocab_size, static_cast<int32_t>(params.vocab_size));
  uint32_t* const summaries = params.counts + place * params.vocab_size;
  const bool wants_sum = WantsSum(sampling, row.vocab_size);
  const float scale = WeightScale(sampling.temperature);
  const int num_tiles = NumTiles(params.vocab_size);
  for (int tile = static_cast<int>(blockIdx.x) * kSummarizeWarps + Warp(); tile < num_tiles;
       tile += static_cast<int>(gridDim.x) * kSummarizeWarps) {
    const TileSummary summary = Summarize(row, tile, wants_sum, scale);
    if (Lane() != 0) continue;
    uint32_t* const words = summaries + static_cast<int64_t>(tile) * kSummaryWords;
    words[0] = __builtin_bit_cast(uint32_t, summary.largest);
    words[1] = static_cast<uint32_t>(summary.sum);
    words[2] = static_cast<uint32_t>(summary.sum >> 32);
  }
}

// Summarises the tiles for which `wanted` is true.
template <typename Wanted>
MINISGL_DEVICE void SummarizeTiles(const PlaceBlock& block, const DeviceSampling& sampling,
                                   const Wanted& wanted) {
  const bool wants_sum = WantsSum(sampling, block.row.vocab_size);
  const float scale = WeightScale(sampling.temperature);
  for (int tile = Warp(); tile < block.num_tiles; tile += kWarps) {
    if (!wanted(tile)) continue;
    const TileSummary summary = Summarize(block.row, tile, wants_sum, scale);
    if (Lane() == 0) {
      block.tile_largest[tile] = summary.largest;
      block.tile_sum[tile] = summary.sum;
    }
  }
}

// Reads the summaries of SummarizeKernel and clears their memory.
MINISGL_DEVICE void TakeSummaries(const PlaceBlock& block, uint32_t* summaries) {
  for (int tile = static_cast<int>(threadIdx.x); tile < block.num_tiles; tile += kThreads) {
    uint32_t* const words = summaries + static_cast<int64_t>(tile) * kSummaryWords;
    block.tile_largest[tile] = __builtin_bit_cast(float, words[0]);
    block.tile_sum[tile] = uint64_t{words[2]} << 32 | words[1];
    for (int i = 0; i < kSummaryWords; ++i) words[i] = 0;
  }
}

// The row's largest logit; +infinity if a logit is NaN or +infinity.
MINISGL_DEVICE float LargestOfTiles(const PlaceBlock& block) {
  __syncthreads();
  float largest = -kInfinity;
  for (int tile = static_cast<int>(threadIdx.x); tile < block.num_tiles; tile += kThreads) {
    largest = fmaxf(largest, block.tile_largest[tile]);
  }
  return BlockMax(largest, -kInfinity, block.scratch.As<float>());
}

MINISGL_DEVICE bool IsFinite(float x) { return x >= -kLargestFloat && x <= kLargestFloat; }

// The changed logit as a float. A finite value past the largest float becomes the largest float; a
// banned token stays banned. In double, as on the host: few logits are changed.
MINISGL_DEVICE float ClampToFinite(double logit) {
  if (logit < -1e300) return -kInfinity;  // only -infinity is that small
  return static_cast<float>(fmin(fmax(logit, -double{kLargestFloat}), double{kLargestFloat}));
}

MINISGL_DEVICE bool HasAnswerPenalty(const DeviceSampling& sampling) {
  return sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

// One place's part of the step's arrays.
struct PlaceArrays {
  float* logits;           // [V]
  uint32_t* counts;        // [V]
  float* raw_logits;       // [V]
  const int32_t* history;  // [history_len]
  const uint32_t* mask;    // [ceil(V / 32)] or null
};

// Adds bias[begin .. end). If a token is listed twice, the thread of its first entry adds both, in
// order.
MINISGL_DEVICE void ApplyBias(const DeviceSampleParams& params, const DeviceSampling& sampling,
                              float* logits) {
  const int begin = sampling.bias_begin, end = sampling.bias_end;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const int32_t id = params.bias_ids[i];
    bool first = true;
    for (int j = begin; j < i; ++j) first &= params.bias_ids[j] != id;
    if (!first) continue;
    float logit = logits[id];
    for (int j = i; j < end; ++j) {
      if (params.bias_ids[j] != id) continue;
      logit = ClampToFinite(static_cast<double>(logit) + double{params.bias_values[j]});
    }
    logits[id] = logit;
  }
  __syncthreads();
}

// Sets logit = apply(logit, count), once for each distinct token of history[begin .. end).
template <typename Apply>
MINISGL_DEVICE void ForEachDistinct(const PlaceArrays& place, int begin, int end,
                                    const Apply& apply) {
  const int first = begin + static_cast<int>(threadIdx.x);
  for (int i = first; i < end; i += kThreads) {
    AtomicAddGlobal(place.counts + place.history[i], 1u);
  }
  __syncthreads();
  for (int i = first; i < end; i += kThreads) {
    const int32_t id = place.history[i];
    const uint32_t count = AtomicExchangeGlobal(place.counts + id, 0u);
    if (count == 0) continue;
    place.logits[id] = ClampToFinite(apply(static_cast<double>(place.logits[id]), count));
  }
  __syncthreads();
}

MINISGL_DEVICE void ApplyPenalties(const DeviceSampling& sampling, const PlaceArrays& place) {
  if (sampling.repetition_penalty != 1) {
    const auto penalty = static_cast<double>(sampling.repetition_penalty);
    ForEachDistinct(place, 0, sampling.history_len, [penalty](double logit, uint32_t) {
      return logit > 0 ? logit / penalty : logit * penalty;
    });
  }
  if (HasAnswerPenalty(sampling)) {
    const auto presence = static_cast<double>(sampling.presence_penalty);
    const auto frequency = static_cast<double>(sampling.frequency_penalty);
    ForEachDistinct(place, sampling.prompt_len, sampling.history_len,
                    [presence, frequency](double logit, uint32_t count) {
                      return logit - presence - frequency * static_cast<double>(count);
                    });
  }
}

// True if the mask leaves out a token of the tile. Bits past the vocabulary are 0 in every mask.
MINISGL_DEVICE bool MasksTile(const uint32_t* mask, int tile, int32_t vocab_size) {
  constexpr int kTileWords = kTileSize / 32;
  const int num_words = (vocab_size + 31) / 32;
  uint32_t all = ~uint32_t{0};
  for (int i = 0; i < kTileWords; ++i) {
    const int word = tile * kTileWords + i;
    all &= word < num_words ? mask[word] : ~uint32_t{0};
  }
  return all != ~uint32_t{0};
}

MINISGL_DEVICE bool ChangesLogits(const DeviceSampling& sampling, const uint32_t* mask) {
  return mask != nullptr || sampling.bias_begin < sampling.bias_end ||
         sampling.banned_begin < sampling.banned_end || sampling.repetition_penalty != 1 ||
         HasAnswerPenalty(sampling);
}

// Marks the tiles in which bias, penalties or bans change a logit. If log-probabilities are wanted,
// keeps a copy of those tiles.
MINISGL_DEVICE void TouchTiles(const DeviceSampleParams& params, const DeviceSampling& sampling,
                               const PlaceArrays& place, const PlaceBlock& block) {
  const auto touch = [&](const int32_t* ids, int begin, int end) {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
      AtomicMaxShared(block.touched + ids[i] / kTileSize, 1u);
    }
  };
  touch(params.bias_ids, sampling.bias_begin, sampling.bias_end);
  touch(params.banned_ids, sampling.banned_begin, sampling.banned_end);
  if (sampling.repetition_penalty != 1) {
    touch(place.history, 0, sampling.history_len);
  } else if (HasAnswerPenalty(sampling)) {
    touch(place.history, sampling.prompt_len, sampling.history_len);
  }
  for (int tile = static_cast<int>(threadIdx.x); place.mask != nullptr && tile < block.num_tiles;
       tile += kThreads) {
    if (MasksTile(place.mask, tile, block.row.vocab_size)) {
      AtomicMaxShared(block.touched + tile, 1u);
    }
  }
  __syncthreads();
  if (sampling.num_logprobs < 0) return;
  for (int tile = Warp(); tile < block.num_tiles; tile += kWarps) {
    if (block.touched[tile] == 0) continue;
    const Tile values = LoadTile(block.row, tile);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (values.token[i] < block.row.vocab_size) {
        place.raw_logits[values.token[i]] = values.logit[i];
      }
    }
  }
  __syncthreads();
}

// Bans the tokens that the mask leaves out, after bias and penalties.
MINISGL_DEVICE void ApplyMask(const PlaceArrays& place, const PlaceBlock& block) {
  if (place.mask == nullptr) return;
  for (int token = static_cast<int>(threadIdx.x); token < block.row.vocab_size; token += kThreads) {
    if ((place.mask[token / 32] >> (token % 32) & 1) == 0) place.logits[token] = -kInfinity;
  }
}

MINISGL_DEVICE void ChangeLogits(const DeviceSampleParams& params, const DeviceSampling& sampling,
                                 const PlaceArrays& place, const PlaceBlock& block) {
  TouchTiles(params, sampling, place, block);
  ApplyBias(params, sampling, place.logits);
  ApplyPenalties(sampling, place);
  for (int i = sampling.banned_begin + static_cast<int>(threadIdx.x); i < sampling.banned_end;
       i += kThreads) {
    place.logits[params.banned_ids[i]] = -kInfinity;
  }
  ApplyMask(place, block);
  __syncthreads();
  SummarizeTiles(block, sampling, [&](int tile) { return block.touched[tile] != 0; });
}

// The logarithm of the sum of exp(logit) over the row.
MINISGL_DEVICE double LogSum(const PlaceBlock& block, float largest) {
  const Weight weight = {largest, WeightScale(1.0f)};
  uint64_t sum = 0;
  for (int tile = Warp(); tile < block.num_tiles; tile += kWarps) {
    const Tile values = LoadTile(block.row, tile);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += weight(values.logit[i]);
  }
  sum = BlockSum(sum, block.scratch);
  return double{largest} + double{Log(static_cast<float>(sum) * 0x1p-40f)};
}

// Lists the `count` most likely tokens; called by the first warp. For each rank it finds the first
// tile with the largest logit, then the first token of that logit in the tile. next[tile] is the
// key of the tile's largest logit that is not listed yet; 0 if all are listed.
MINISGL_DEVICE void ListMostLikely(const PlaceBlock& block, int count, double log_sum,
                                   Shared<uint32_t> next, TokenLogprob* out) {
  for (int tile = Lane(); tile < block.num_tiles; tile += kWarpSize) {
    next[tile] = KeyOf(block.tile_largest[tile]);
  }
  uint32_t last_key = 0xffffffffu;  // the rank listed last
  int last_token = -1;
  const auto is_listed = [&](uint32_t key, int token) {
    return key > last_key || (key == last_key && token <= last_token);
  };
  for (int rank = 0; rank < count; ++rank) {
    __syncwarp();
    uint32_t own_key = 0;
    int own_tile = 0;
    for (int tile = Lane(); tile < block.num_tiles; tile += kWarpSize) {
      const uint32_t tile_key = next[tile];
      if (tile_key <= own_key) continue;
      own_key = tile_key;
      own_tile = tile;
    }
    const uint32_t key = WarpMax(own_key);
    const int tile = -WarpMax(own_key == key ? -own_tile : -block.num_tiles);
    const Tile values = LoadTile(block.row, tile);
    const int token = FindInTile(values, 0, [&](float logit, int id) -> uint64_t {
      return KeyOf(logit) == key && !is_listed(key, id) ? 1 : 0;
    });
    last_key = key;
    last_token = token;
    uint32_t left = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t own = KeyOf(values.logit[i]);
      const bool counts =
          values.token[i] < block.row.vocab_size && !is_listed(own, values.token[i]);
      if (counts && own > left) left = own;
    }
    left = WarpMax(left);
    __syncwarp();  // next[tile] has been read
    if (Lane() == 0) {
      next[tile] = left;
      out[rank] = {token, static_cast<float>(double{LogitOf(key)} - log_sum)};
    }
  }
}

// The lowest token with the largest logit. Called by the whole block; every thread gets the result.
MINISGL_DEVICE int Greedy(const PlaceBlock& block, float largest) {
  int first = block.num_tiles;
  for (int tile = static_cast<int>(threadIdx.x); tile < block.num_tiles; tile += kThreads) {
    if (block.tile_largest[tile] == largest) first = min(first, tile);
  }
  first = -BlockMax(-first, -block.num_tiles, block.scratch.As<int>());
  return FindInTile(LoadTile(block.row, first), 0,
                    [largest](float logit, int) -> uint64_t { return logit == largest ? 1 : 0; });
}

// Makes the tile sums relative to the row's largest logit, and returns their sum.
MINISGL_DEVICE uint64_t RescaleSums(const PlaceBlock& block, const Weight& weight) {
  uint64_t total = 0;
  for (int tile = static_cast<int>(threadIdx.x); tile < block.num_tiles; tile += kThreads) {
    const uint64_t own = block.tile_sum[tile];
    const double ratio = weight.Ratio(block.tile_largest[tile]);
    const auto sum = static_cast<uint64_t>(static_cast<double>(own) * ratio);
    block.tile_sum[tile] = sum;
    total += sum;
  }
  return BlockSum(total, block.scratch);
}

// The largest multiple of 2^-40 that is at most u * total, and below total.
MINISGL_DEVICE uint64_t DrawTarget(const DeviceSampling& sampling, uint64_t total) {
  const auto index = static_cast<uint64_t>(sampling.history_len - sampling.prompt_len);
  const double u = UniformDouble(sampling.seed, index);
  return min(static_cast<uint64_t>(u * static_cast<double>(total)), total - 1);
}

// Draws with only a temperature: the tile from the summaries, then the token from the tile, with
// weights relative to the tile's largest logit.
MINISGL_DEVICE int DrawFromAll(const PlaceBlock& block, const DeviceSampling& sampling,
                               const Weight& weight) {
  const uint64_t total = RescaleSums(block, weight);
  const uint64_t target = DrawTarget(sampling, total);
  const Found found = BlockFind(block.num_tiles, target, block.scratch,
                                [&](int i) -> uint64_t { return block.tile_sum[i]; });
  const Tile values = LoadTile(block.row, found.index);
  const Weight of_tile = {block.tile_largest[found.index], weight.scale};
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum += of_tile(values.logit[i]);
  sum = WarpSum(sum);
  const uint64_t rescaled = block.tile_sum[found.index];
  const double share = static_cast<double>(target - found.before) / static_cast<double>(rescaled);
  const auto within = static_cast<uint64_t>(share * static_cast<double>(sum));
  return FindInTile(values, min(within, sum - 1),
                    [of_tile](float logit, int) { return of_tile(logit); });
}

MINISGL_DEVICE int DrawFromKept(PlaceBlock* block, const DeviceSampling& sampling,
                                const Weight& weight) {
  const int top_k = HasTopK(sampling, block->row.vocab_size) ? sampling.top_k : 0;
  const bool has_top_p = sampling.top_p < 1;
  const auto min_weight =
      static_cast<uint64_t>(double{fminf(fmaxf(sampling.min_p, 0.0f), 1.0f)} * 0x1p40);
  uint64_t total = 0, allowed = 0;
  if (has_top_p && top_k == 0) {
    total = RescaleSums(*block, weight);
    allowed = total - TopPTarget(sampling.top_p, total);
  }
  Kept kept = {.weight = weight, .lowest = 0};
  kept.lowest = FindCut(*block, weight, top_k, has_top_p, allowed, min_weight);
  ListTiles(block, kept.lowest);
  BufferListed(block, kept.lowest);
  if (top_k > 0) KeepTopK(*block, top_k, &kept);
  if (has_top_p) {
    if (top_k > 0) {
      if (block->num_buffered < 0) BufferListed(block, kept.lowest);
      total = SumListed(*block, kept);
    }
    KeepTopP(*block, sampling.top_p, total, &kept);
  }
  if (min_weight > 0) kept.min_weight = min_weight;
  total = SumListed(*block, kept);
  return FindListed(*block, DrawTarget(sampling, total), kept);
}

MINISGL_DEVICE int ChooseToken(PlaceBlock* block, const DeviceSampling& sampling, float largest) {
  if (IsGreedy(sampling)) return Greedy(*block, largest);
  const Weight weight = {largest, WeightScale(sampling.temperature)};
  const bool keeps_all =
      !HasTopK(sampling, block->row.vocab_size) && !(sampling.top_p < 1) && !(sampling.min_p > 0);
  if (keeps_all) return DrawFromAll(*block, sampling, weight);
  return DrawFromKept(block, sampling, weight);
}

MINISGL_DEVICE PlaceBlock TakeWorkspace(const float* logits, int32_t vocab_size) {
  const int num_tiles = NumTiles(vocab_size);
  SharedArena arena;
  const PlaceBlock block = {.row = Row(logits, vocab_size),
                            .num_tiles = num_tiles,
                            .tile_largest = arena.Take<float>(num_tiles),
                            .tile_sum = arena.Take<uint64_t>(num_tiles),
                            .tile_list = arena.Take<uint32_t>(num_tiles),
                            .touched = arena.Take<uint32_t>(num_tiles),
                            .scratch = arena.Take<uint64_t>(kScratchWords),
                            .bin_low = arena.Take<uint32_t>(kNumBins),
                            .bin_high = arena.Take<uint32_t>(kNumBins),
                            .counter = arena.Take<uint32_t>(1),
                            .buffer_logit = arena.Take<float>(kBufferSize),
                            .buffer_token = arena.Take<int32_t>(kBufferSize)};
  for (int tile = static_cast<int>(threadIdx.x); tile < num_tiles; tile += kThreads) {
    block.touched[tile] = 0;
  }
  return block;
}

// Samples one place; every thread gets the result. `summarized`: SummarizeKernel ran.
MINISGL_DEVICE DeviceToken SamplePlace(const DeviceSampleParams& params,
                                       const DeviceSampling& sampling, const PlaceArrays& place,
                                       bool summarized, TokenLogprob* top_logprobs) {
  constexpr auto kToken = static_cast<int32_t>(RowResult::Outcome::kToken);
  const DeviceToken non_finite = {-1, static_cast<int32_t>(RowResult::Outcome::kNonFinite), 0, 0};
  PlaceBlock block = TakeWorkspace(place.logits, static_cast<int32_t>(params.vocab_size));
  if (summarized) {
    TakeSummaries(block, place.counts);
  } else {
    SummarizeTiles(block, sampling, [](int) { return true; });
  }
  float largest = LargestOfTiles(block);
  if (!IsFinite(largest)) return non_finite;

  const bool wants_logprobs = sampling.num_logprobs >= 0;
  const int num_ranks = min(sampling.num_logprobs, block.row.vocab_size);
  double log_sum = 0;
  if (wants_logprobs) {
    log_sum = LogSum(block, largest);
    if (Warp() == 0) ListMostLikely(block, num_ranks, log_sum, block.tile_list, top_logprobs);
    __syncthreads();
  }
  if (ChangesLogits(sampling, place.mask)) {
    ChangeLogits(params, sampling, place, block);
    largest = LargestOfTiles(block);
    if (!IsFinite(largest)) return non_finite;
  }

  DeviceToken result = {ChooseToken(&block, sampling, largest), kToken, 0, 0};
  if (wants_logprobs) {
    const bool touched = block.touched[result.token / kTileSize] != 0;
    const float raw = (touched ? place.raw_logits : place.logits)[result.token];
    result.logprob = static_cast<float>(double{raw} - log_sum);
    result.num_ranks = num_ranks;
  }
  return result;
}

MINISGL_DEVICE const uint32_t* MaskOf(const DeviceSampleParams& params, int64_t place) {
  if (params.mask_of == nullptr || params.mask_of[place] < 0) return nullptr;
  return params.masks + params.mask_of[place] * ((params.vocab_size + 31) / 32);
}

MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreads, 2)
    SampleKernel(DeviceSampleParams params, bool summarized) {
  GridWait();
  GridRelease();
  const auto index = static_cast<int64_t>(blockIdx.x);
  const DeviceSampling& sampling = params.places[index];
  const PlaceArrays place = {
      .logits = params.logits + index * params.vocab_size,
      .counts = params.counts + index * params.vocab_size,
      .raw_logits = params.raw_logits + index * params.vocab_size,
      .history = params.token_pool + sampling.table_row * params.token_pool_stride,
      .mask = MaskOf(params, index)};
  const DeviceToken result = SamplePlace(params, sampling, place, summarized,
                                         params.top_logprobs + index * params.max_logprobs);
  if (threadIdx.x == 0) params.sampled[index] = result;
}

}  // namespace
}  // namespace sample

CudaError LaunchSample(const LaunchContext& context, const DeviceSampleParams& params) {
  using namespace sample;  // NOLINT: this file's own
  constexpr CudaError kInvalidValue = kCudaInvalidValue;
  if (params.vocab_size < 1 || params.vocab_size > kVocabMax) return kInvalidValue;
  const int num_tiles = NumTiles(params.vocab_size);
  const auto num_places = static_cast<unsigned>(params.num_places);
  const bool summarized = num_tiles > kTilesAlone;
  if (summarized && num_places > 0) {
    // A multiprocessor holds eight blocks; no more blocks than there are tiles for their warps.
    const int wanted = 8 * context.num_multiprocessors / params.num_places;
    const int useful = (num_tiles + kSummarizeWarps - 1) / kSummarizeWarps;
    const auto blocks = static_cast<unsigned>(wanted < 1 ? 1 : wanted < useful ? wanted : useful);
    const CudaError error = Launch(context,
                                   {.grid = {blocks, num_places},
                                    .block = {kSummarizeThreads},
                                    .shared_bytes = 0,
                                    .programmatic = true},
                                   SummarizeKernel, params);
    if (error != kCudaSuccess) return error;
  }
  return Launch(context,
                {.grid = {num_places},
                 .block = {kThreads},
                 .shared_bytes = SharedBytes(params.vocab_size),
                 .programmatic = true},
                SampleKernel, params, summarized);
}

}  // namespace minisgl::cuda
