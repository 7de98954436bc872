// Weights of rows of codes: expanded to the activations' type, for products of matrices that are
// expanded to a scratch, and as embeddings.
#include "kernels/chunk.h"
#include "kernels/coded_weights.cuh"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::Shared;
using device::SharedArena;

constexpr int kExpandThreads = 128;

// Calls f(first input, weights) for each group of a lane's line in `row`.
template <RowCodes KIND, typename F>
MINISGL_DEVICE void ForLane(const CodedRows& p, int64_t row, int line, int lane,
                            Shared<float> table, const F& f) {
  const LaneLine part = LoadLaneLine<KIND>(p, row, line, lane);
#pragma unroll
  for (int j = 0; j < kLineGroups<KIND>; ++j) {
    const int group = p.order.Group(line, j, kLineGroups<KIND>);
    const int first = group * kCodeGroup + lane * kLaneCodes;
    if (first >= p.num_in) continue;
    const GroupFactors factors = LoadGroupFactors(p, row, first / p.group_inputs);
    float weights[kLaneCodes];
    LaneWeights<KIND>(p, part, j, factors, table, weights);
    f(first, weights);
  }
}

struct ExpandKernelParams {
  CodedRows rows;
  int64_t first_row;
  void* out;  // [rows, num_in]
  bool aligned;
};

// Grid (rows, lines of a row), block 128: a thread for each lane's 16 bytes of codes. Shared
// memory: 64 bytes. Traffic: the rows' codes and scales, and sizeof(T) bytes for each weight.
template <typename T, RowCodes KIND>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExpandThreads, 1)
    ExpandCodesKernel(MINISGL_GRID_CONSTANT ExpandKernelParams p) {
  SharedArena arena;
  const Shared<float> table = TakeCodeTable(p.rows, arena);
  GridRelease();
  __syncthreads();  // the table is written
  GridWait();       // an earlier product may read what is overwritten
  const int index = static_cast<int>(blockIdx.y) * kExpandThreads + static_cast<int>(threadIdx.x);
  const int line = index / kLineLanes, lane = index % kLineLanes;
  if (line >= p.rows.num_lines) return;
  T* const out = static_cast<T*>(p.out) + int64_t{blockIdx.x} * p.rows.num_in;
  ForLane<KIND>(p.rows, p.first_row + blockIdx.x, line, lane, table,
                [&](int first, const float(&weights)[kLaneCodes]) {
                  StoreChunk(out + first, p.rows.num_in - first, p.aligned, weights);
                });
}

struct PlainLinesKernelParams {
  CodedRows rows;
  int64_t first_row;
  uint8_t* out;  // [rows, 64 * lines]
};

// The lines of rows of 8-bit codes whose groups are neighbours. Grid and block of
// ExpandCodesKernel. Traffic: two bytes for each code.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExpandThreads, 1)
    PlainLinesKernel(MINISGL_GRID_CONSTANT PlainLinesKernelParams p) {
  GridRelease();
  GridWait();  // an earlier product may read what is overwritten
  const int index = static_cast<int>(blockIdx.y) * kExpandThreads + static_cast<int>(threadIdx.x);
  const int line = index / kLineLanes, lane = index % kLineLanes;
  if (line >= p.rows.num_lines) return;
  constexpr int kGroups = kLineGroups<RowCodes::kE4M3>;
  const LaneLine part = LoadLaneLine<RowCodes::kE4M3>(p.rows, p.first_row + blockIdx.x, line, lane);
  uint8_t* const out = p.out + int64_t{blockIdx.x} * p.rows.num_lines * kCodeLineBytes + lane * 16;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int group = p.rows.order.Group(line, j, kGroups);
    device::Vec<uint32_t, 2> words;
    words[0] = part.words[2 * j];
    words[1] = part.words[2 * j + 1];
    uint8_t* const to = out + group / kGroups * kCodeLineBytes + group % kGroups * kLaneCodes;
    device::StoreVec(reinterpret_cast<uint32_t*>(to), words);
  }
}

struct CodedEmbeddingKernelParams {
  CodedRows rows;
  const int32_t* ids;
  float scale;
  float* out;
  int64_t first_id, num_ids;
  bool aligned;
};

// Grid (tokens, lines of a row), block 128. Shared memory: 64 bytes. Traffic: a row's codes and
// scales and 4 * D bytes for each token.
template <typename T, RowCodes KIND>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kExpandThreads, 1)
    CodedEmbeddingKernel(MINISGL_GRID_CONSTANT CodedEmbeddingKernelParams p) {
  SharedArena arena;
  const Shared<float> table = TakeCodeTable(p.rows, arena);
  GridRelease();
  __syncthreads();  // the table is written
  GridWait();
  const int index = static_cast<int>(blockIdx.y) * kExpandThreads + static_cast<int>(threadIdx.x);
  const int line = index / kLineLanes, lane = index % kLineLanes;
  if (line >= p.rows.num_lines) return;
  float* const out = p.out + int64_t{blockIdx.x} * p.rows.num_in;
  const int64_t id = p.ids[blockIdx.x] - p.first_id;
  const bool has_row = id >= 0 && id < p.num_ids;
  ForLane<KIND>(p.rows, has_row ? id : 0, line, lane, table,
                [&](int first, float(&weights)[kLaneCodes]) {
#pragma unroll
                  for (int i = 0; i < kLaneCodes; ++i) {
                    const float weight = device::ToFloat(device::FromFloat<T>(weights[i]));
                    weights[i] = has_row ? weight * p.scale : 0.0f;
                  }
                  StoreChunk(out + first, p.rows.num_in - first, p.aligned, weights);
                });
}

LaunchShape ShapeOfRows(const CodedRows& rows, int64_t num_rows) {
  const int64_t lanes = int64_t{rows.num_lines} * kLineLanes;
  return {.grid = {static_cast<unsigned>(num_rows),
                   static_cast<unsigned>(CeilDiv<int64_t>(lanes, kExpandThreads))},
          .block = {kExpandThreads},
          .shared_bytes = kCodeNumbers * sizeof(float),
          .programmatic = true};
}

}  // namespace

CudaError LaunchExpandCodes(const LaunchContext& context, const CodedRows& rows, int64_t first_row,
                            int64_t num_rows, DType dtype, void* out) {
  const ExpandKernelParams p = {.rows = rows,
                                .first_row = first_row,
                                .out = out,
                                .aligned = rows.num_in % kChunk == 0 && IsAligned16(out)};
  const LaunchShape shape = ShapeOfRows(rows, num_rows);
  return DispatchHalf(dtype, [&]<typename T>() {
    return DispatchCodes(rows, [&]<RowCodes KIND>() {
      return Launch(context, shape, ExpandCodesKernel<T, KIND>, p);
    });
  });
}

CudaError LaunchPlainLines(const LaunchContext& context, const CodedRows& rows, int64_t first_row,
                           int64_t num_rows, uint8_t* out) {
  MINISGL_CHECK(rows.kind == RowCodes::kE4M3, "lines of other codes than e4m3");
  return Launch(context, ShapeOfRows(rows, num_rows), PlainLinesKernel,
                PlainLinesKernelParams{.rows = rows, .first_row = first_row, .out = out});
}

CudaError LaunchCodedEmbedding(const LaunchContext& context, const EmbeddingParams& params,
                               const CodedRows& rows, DType dtype) {
  const CodedEmbeddingKernelParams p = {
      .rows = rows,
      .ids = params.ids,
      .scale = params.scale,
      .out = params.out,
      .first_id = params.first_id,
      .num_ids = params.table->num_out,
      .aligned = rows.num_in % kChunk == 0 && IsAligned16(params.out)};
  const LaunchShape shape = ShapeOfRows(rows, params.num_tokens);
  return DispatchHalf(dtype, [&]<typename T>() {
    return DispatchCodes(rows, [&]<RowCodes KIND>() {
      return Launch(context, shape, CodedEmbeddingKernel<T, KIND>, p);
    });
  });
}

}  // namespace minisgl::cuda
