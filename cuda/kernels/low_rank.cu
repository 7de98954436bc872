// Products of low rank beside a product of the model, of rows whose adapters are in slots
// (minisgl/adapter_params.h). Which adapter a row has is read from device memory, so that a graph
// serves steps with any adapters.
//
// Two kernels, and a third for weights in place of the model's: u = A x for each row (shrink), then
// out += B (scale u) (expand). A block has a tile of rows and goes through the adapters in it: rows
// of one share its loads of A and B. Steps of few rows have a tile for each row, since their
// adapters often differ and blocks are scarce; a tile of 8 rows reads A and B an eighth as often. A
// tile without adapters ends after it has read their slots.
//
// Orders of sums: an element of u is summed by one warp, lane l taking inputs 8 l + 256 j in order
// of j, then in butterfly order; an output is summed by one thread in order of ranks. Neither
// depends on the tile or on other rows.
//
// A and B have the type of the adapter's file (f32 or bf16): a rounded A is another adapter, and
// they are a hundredth of the product's own weights.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/adapter_params.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

constexpr int kLowRankThreads = 128;
constexpr int kLowRankWarps = kLowRankThreads / device::kWarpSize;
constexpr int kLowRankRows = 8;        // of a tile
constexpr int64_t kRowsAloneMax = 64;  // steps of at most so many have a tile for each row
constexpr int kOutsOfWarp = 8;         // of weights in place of the model's

struct LowRankKernelParams {
  SlotLowRankParams p;
  int64_t out_stride;
  int num_rows, rows_per_input, rows_per_token;  // as in p, of 32 bits to divide by
  int tokens_of_head;                            // p.heads.num_tokens
  bool aligned;  // rows of x, and of matrices over the inputs, are whole chunks of 16 bytes
};

MINISGL_DEVICE const std::byte* SlotOfToken(const AdapterSlots& slots, int64_t token) {
  const int slot = slots.slot_of[token];
  return slot < 0 ? nullptr : slots.memory + slot * slots.slot_bytes;
}

// The places of a row's first input and first output.
MINISGL_DEVICE int64_t InputOf(const LowRankKernelParams& params, int row) {
  const HeadRows& heads = params.p.heads;
  if (params.tokens_of_head == 0) return row / params.rows_per_input * params.p.num_in;
  return row % params.tokens_of_head * heads.x_token + row / params.tokens_of_head * heads.x_head;
}
MINISGL_DEVICE int64_t OutputOf(const LowRankKernelParams& params, int row) {
  const HeadRows& heads = params.p.heads;
  if (params.tokens_of_head == 0) return row * params.out_stride;
  return row % params.tokens_of_head * heads.out_token +
         row / params.tokens_of_head * heads.out_head;
}

// A row's slot, and its product if the adapter changes it; else null.
struct RowProduct {
  const std::byte* slot = nullptr;
  const SlotProduct* product = nullptr;
};

MINISGL_DEVICE RowProduct ProductOfRow(const LowRankKernelParams& params, int row) {
  const SlotLowRankParams& p = params.p;
  RowProduct found;
  if (row >= params.num_rows) return found;
  int64_t token = row / params.rows_per_token, expert = 0;
  if (params.tokens_of_head > 0) {
    token = row % params.tokens_of_head;
    expert = row / params.tokens_of_head;
  }
  if (p.tokens != nullptr) token = p.tokens[row];
  found.slot = SlotOfToken(p.slots, token);
  if (found.slot == nullptr) return found;
  if (p.experts != nullptr) expert = p.experts[row];
  const auto* const products = reinterpret_cast<const SlotProduct*>(found.slot);
  const SlotProduct* const product = products + p.first_product + expert;
  if (product->changes()) found.product = product;
  return found;
}

// Calls run(slot, product, mask) for each product of the tile's rows; bit i of the mask is row
// first + i. All threads of the block take the same way.
template <int ROWS, typename Run>
MINISGL_DEVICE void ForProducts(const LowRankKernelParams& params, const Run& run) {
  RowProduct of[ROWS];
  unsigned left = 0;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    of[i] = ProductOfRow(params, static_cast<int>(blockIdx.x) * ROWS + i);
    if (of[i].product != nullptr) left |= 1u << i;
  }
#pragma unroll 1
  while (left != 0) {
    RowProduct next;
#pragma unroll
    for (int i = ROWS - 1; i >= 0; --i) {
      if ((left >> i & 1) != 0) next = of[i];
    }
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (of[i].product == next.product) mask |= 1u << i;
    }
    left &= ~mask;
    run(next.slot, *next.product, mask);
  }
}

MINISGL_DEVICE int Lane() { return static_cast<int>(threadIdx.x) % device::kWarpSize; }
MINISGL_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / device::kWarpSize; }

// One row of `weights` (element type W) with the inputs of the mask's rows: every lane gets all
// sums.
template <typename T, typename W, int ROWS>
MINISGL_DEVICE void SumInputs(const LowRankKernelParams& params, const W* weights, unsigned mask,
                              float (&sums)[ROWS]) {
  const SlotLowRankParams& p = params.p;
  const int first = static_cast<int>(blockIdx.x) * ROWS;
  const T* inputs[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    sums[i] = 0;
    inputs[i] = p.x.as<T>() + InputOf(params, first + i);
  }
  for (int64_t in = Lane() * kChunk; in < p.num_in; in += device::kWarpSize * kChunk) {
    float w[kChunk];
    LoadChunk(weights + in, p.num_in - in, params.aligned, w);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if ((mask >> i & 1) == 0) continue;
      float x[kChunk];
      LoadChunk(inputs[i] + in, p.num_in - in, params.aligned, x);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) sums[i] += w[j] * x[j];
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if ((mask >> i & 1) != 0) sums[i] = device::WarpSum(sums[i]);
  }
}

template <typename T, int ROWS>
MINISGL_DEVICE void SumInputsOf(const LowRankKernelParams& params, const std::byte* matrix,
                                bool is_bf16, int64_t row, unsigned mask, float (&sums)[ROWS]) {
  const int64_t at = row * params.p.num_in;
  if (is_bf16) {
    SumInputs<T>(params, reinterpret_cast<const device::bf16*>(matrix) + at, mask, sums);
  } else {
    SumInputs<T>(params, reinterpret_cast<const float*>(matrix) + at, mask, sums);
  }
}

// Grid (tiles of rows, ranks / 4), block 128: a warp for each rank. Traffic: A once for each tile
// of rows of its adapter, and x once for each rank, from the caches after the first.
template <typename T, int ROWS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kLowRankThreads, 1)
    LowRankShrinkKernel(MINISGL_GRID_CONSTANT LowRankKernelParams params) {
  device::GridRelease();
  device::GridWait();
  const SlotLowRankParams& p = params.p;
  const int rank = static_cast<int>(blockIdx.y) * kLowRankWarps + Warp();
  ForProducts<ROWS>(params, [&](const std::byte* slot, const SlotProduct& product, unsigned mask) {
    if (rank >= product.num_ranks) return;
    float sums[ROWS];
    SumInputsOf<T>(params, slot + product.a, product.is_bf16 != 0, rank, mask, sums);
    if (Lane() != 0) return;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if ((mask >> i & 1) == 0) continue;
      p.inner[(int64_t{blockIdx.x} * ROWS + i) * p.max_ranks + rank] = sums[i];
    }
  });
}

// Weights in place of the model's. Grid (tiles of rows, outputs / 32), block 128: a warp for 8
// outputs, one after another. Traffic: the weights once for each tile of rows.
template <typename T, typename OUT, int ROWS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kLowRankThreads, 1)
    WholeRowsKernel(MINISGL_GRID_CONSTANT LowRankKernelParams params) {
  device::GridRelease();
  device::GridWait();
  const SlotLowRankParams& p = params.p;
  const int first = (static_cast<int>(blockIdx.y) * kLowRankWarps + Warp()) * kOutsOfWarp;
  ForProducts<ROWS>(params, [&](const std::byte* slot, const SlotProduct& product, unsigned mask) {
    const auto* const parts = reinterpret_cast<const SlotWhole*>(slot + product.whole);
    for (int part = 0; part < product.num_whole; ++part) {
      const int begin = parts[part].first_out, end = begin + parts[part].num_out;
      const std::byte* const weights = slot + parts[part].weights;
#pragma unroll 1
      for (int o = first > begin ? first : begin; o < first + kOutsOfWarp && o < end; ++o) {
        float sums[ROWS];
        SumInputsOf<T>(params, weights, parts[part].is_bf16 != 0, o - begin, mask, sums);
        if (Lane() != 0) continue;
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          if ((mask >> i & 1) == 0) continue;
          const int64_t row = OutputOf(params, static_cast<int>(blockIdx.x) * ROWS + i);
          p.out.as<OUT>()[row + o] = device::FromFloat<OUT>(sums[i]);
        }
      }
    }
  });
}

// The part that has output `o`; null: none. Parts are in order.
MINISGL_DEVICE const SlotPart* PartOf(const SlotPart* parts, int count, int o) {
  int low = 0;  // parts before it begin at or before the output
  for (int high = count; low < high;) {
    const int middle = (low + high) / 2;
    if (parts[middle].first_out <= o) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0 || o >= parts[low - 1].first_out + parts[low - 1].num_out) return nullptr;
  return parts + low - 1;
}

template <typename B, int ROWS>
MINISGL_DEVICE void SumRanks(const SlotLowRankParams& p, const B* tile, const SlotPart& part,
                             unsigned mask, float (&sums)[ROWS]) {
  const float* const inner = p.inner + int64_t{blockIdx.x} * ROWS * p.max_ranks + part.first_rank;
  for (int k = 0; k < part.rank; ++k) {
    const float b = device::ToFloat(tile[k * kLowRankTile]);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if ((mask >> i & 1) != 0) sums[i] += b * (part.scale * inner[i * p.max_ranks + k]);
    }
  }
}

// Grid (tiles of rows, outputs / 128), block 128: a thread for each output. Traffic: B once for
// each tile of rows of its adapter, and the outputs are read and written.
template <typename OUT, int ROWS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kLowRankThreads, 1)
    LowRankExpandKernel(MINISGL_GRID_CONSTANT LowRankKernelParams params) {
  device::GridRelease();
  device::GridWait();
  const SlotLowRankParams& p = params.p;
  const int o = static_cast<int>(blockIdx.y * kLowRankThreads + threadIdx.x);
  ForProducts<ROWS>(params, [&](const std::byte* slot, const SlotProduct& product, unsigned mask) {
    if (o >= p.num_out) return;
    const SlotPart* const part =
        PartOf(reinterpret_cast<const SlotPart*>(slot + product.parts), product.num_parts, o);
    if (part == nullptr && product.factor == 0 && product.offset == 0) return;
    float sums[ROWS] = {};
    if (part != nullptr) {
      const int at = o - part->first_out;
      const int64_t begin =
          int64_t{at / kLowRankTile} * part->rank * kLowRankTile + at % kLowRankTile;
      if (product.is_bf16 != 0) {
        SumRanks(p, reinterpret_cast<const device::bf16*>(slot + part->b) + begin, *part, mask,
                 sums);
      } else {
        SumRanks(p, reinterpret_cast<const float*>(slot + part->b) + begin, *part, mask, sums);
      }
    }
    const auto* const factors = reinterpret_cast<const float*>(slot + product.factor);
    const auto* const offsets = reinterpret_cast<const float*>(slot + product.offset);
    const float factor = product.factor == 0 ? 1.0f : factors[o];
    const float offset = product.offset == 0 ? 0.0f : offsets[o];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if ((mask >> i & 1) == 0) continue;
      OUT* const out =
          p.out.as<OUT>() + OutputOf(params, static_cast<int>(blockIdx.x) * ROWS + i) + o;
      *out = device::FromFloat<OUT>(device::ToFloat(*out) * factor + offset + sums[i]);
    }
  });
}

template <typename F>
MINISGL_DEVICE float ElementOf(const F* memory, bool is_bf16, int64_t at) {
  return is_bf16 ? device::ToFloat(reinterpret_cast<const device::bf16*>(memory)[at])
                 : reinterpret_cast<const float*>(memory)[at];
}

// Grid (tokens), block 128. Traffic: a row of the table that is read and written.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kLowRankThreads, 1)
    SlotEmbeddingsKernel(MINISGL_GRID_CONSTANT SlotEmbeddingParams p) {
  device::GridRelease();
  device::GridWait();
  const int64_t token = blockIdx.x;
  const std::byte* const slot = SlotOfToken(p.slots, token);
  if (slot == nullptr) return;
  const SlotEmbedding& own = *reinterpret_cast<const SlotEmbedding*>(slot + p.embedding);
  const int64_t id = p.ids[token];
  const int64_t row =
      own.row_of == 0 ? -1 : reinterpret_cast<const int32_t*>(slot + own.row_of)[id];
  const int64_t from = row >= 0 ? own.rows : own.whole;
  if (from != 0) {
    const bool is_bf16 = (row >= 0 ? own.rows_are_bf16 : own.whole_is_bf16) != 0;
    for (int64_t i = threadIdx.x; i < p.width; i += kLowRankThreads) {
      const float value = ElementOf(slot + from, is_bf16, (row >= 0 ? row : id) * p.width + i);
      p.out[token * p.width + i] = p.is_first_rank ? value * p.scale : 0.0f;
    }
  }
  if (p.inner == nullptr) return;
  for (int k = static_cast<int>(threadIdx.x); k < own.rank; k += kLowRankThreads) {
    p.inner[token * p.max_ranks + k] =
        ElementOf(slot + own.a, own.a_is_bf16 != 0, k * own.num_ids + id) * p.scale;
  }
}

LaunchShape TilesShape(int64_t num_rows, int rows_of_tile, int64_t pieces) {
  return {.grid = {static_cast<unsigned>(CeilDiv<int64_t>(num_rows, rows_of_tile)),
                   static_cast<unsigned>(pieces)},
          .block = {kLowRankThreads},
          .programmatic = true};
}

template <typename T, typename OUT, int ROWS>
CudaError LaunchTiles(const LaunchContext& context, const LowRankKernelParams& params) {
  const SlotLowRankParams& p = params.p;
  const auto shape = [&](int64_t pieces) { return TilesShape(p.num_rows, ROWS, pieces); };
  if (p.has_whole) {
    const CudaError error =
        Launch(context, shape(CeilDiv<int64_t>(p.num_out, kLowRankWarps * kOutsOfWarp)),
               WholeRowsKernel<T, OUT, ROWS>, params);
    if (error != kCudaSuccess) return error;
  }
  if (p.x.data != nullptr) {
    const CudaError error = Launch(context, shape(CeilDiv<int64_t>(p.max_ranks, kLowRankWarps)),
                                   LowRankShrinkKernel<T, ROWS>, params);
    if (error != kCudaSuccess) return error;
  }
  return Launch(context, shape(CeilDiv<int64_t>(p.num_out, kLowRankThreads)),
                LowRankExpandKernel<OUT, ROWS>, params);
}

}  // namespace

CudaError LaunchSlotLowRank(const LaunchContext& context, const SlotLowRankParams& p) {
  if (p.num_rows == 0) return kCudaSuccess;
  const LowRankKernelParams params = {
      .p = p,
      .out_stride = p.out_stride == 0 ? p.num_out : p.out_stride,
      .num_rows = static_cast<int>(p.num_rows),
      .rows_per_input = static_cast<int>(p.rows_per_input),
      .rows_per_token = static_cast<int>(p.rows_per_token),
      .tokens_of_head = static_cast<int>(p.heads.num_tokens),
      .aligned =
          (p.num_in | p.heads.x_token | p.heads.x_head) % kChunk == 0 && IsAligned16(p.x.data)};
  const DType dtype = p.x.data == nullptr ? DType::kBF16 : p.x.dtype;
  const bool is_alone = p.num_rows <= kRowsAloneMax;
  return DispatchHalf(dtype, [&]<typename T>() {
    if (p.out.dtype == DType::kF32) {
      return is_alone ? LaunchTiles<T, float, 1>(context, params)
                      : LaunchTiles<T, float, kLowRankRows>(context, params);
    }
    MINISGL_CHECK(p.out.dtype == dtype, "x is {}, the output is {}", DTypeName(dtype),
                  DTypeName(p.out.dtype));
    return is_alone ? LaunchTiles<T, T, 1>(context, params)
                    : LaunchTiles<T, T, kLowRankRows>(context, params);
  });
}

CudaError LaunchSlotEmbeddings(const LaunchContext& context, const SlotEmbeddingParams& p) {
  return Launch(context, TilesShape(p.num_tokens, 1, 1), SlotEmbeddingsKernel, p);
}

}  // namespace minisgl::cuda
