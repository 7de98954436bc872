// Inputs of products rounded to e4m3 (scaled_input.h), by kernels of their own and behind norms and
// activations.
//
// A block has a token, and a thread chunks of eight inputs (chunk.h): the eight codes of a lane in
// a line. A scale for a token needs all of them: a thread keeps a norm's chunks, and reads
// others a second time. A scale for 128 inputs is found by the 16 threads that have them.
#include <algorithm>

#include "kernels/activate_chunk.cuh"
#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/norm_row.cuh"
#include "kernels/scaled_input.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::kWarpSize;
using device::Shared;
using device::SharedArena;

constexpr int kScaleThreadsMax = 512;
constexpr float kMostE4M3 = 448;
constexpr float kLeastSize = 0x1p-100f;  // whose inverse, times 448, is finite
constexpr int kScaleGroupThreads = static_cast<int>(kScaledInputs) / kChunk;

static_assert(kLaneCodes == kChunk);

// Largest |v|, and `most`; NaN does not count.
MINISGL_DEVICE float LargestOf(const float (&v)[kChunk], float most) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float size = v[i] < 0 ? -v[i] : v[i];
    most = size > most ? size : most;
  }
  return most;
}

template <typename T>
MINISGL_DEVICE void RoundToType(float (&v)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = device::ToFloat(device::FromFloat<T>(v[i]));
}

// The codes of inputs [first, first + 8) of this block's token.
MINISGL_DEVICE void StoreCodes(const ScaledInput& p, int first, float inverse,
                               const float (&v)[kChunk]) {
  constexpr int kOfLine = LineGroupsOf(RowCodes::kE4M3);
  int place = 0;
  const int line = p.order.Line(first / kCodeGroup, kOfLine, &place);
  const int lane = first % kCodeGroup / kLaneCodes;
  device::Vec<uint32_t, 2> words;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low =
        device::PackE4M3(device::MulRn(v[4 * i], inverse), device::MulRn(v[4 * i + 1], inverse));
    const uint32_t high = device::PackE4M3(device::MulRn(v[4 * i + 2], inverse),
                                           device::MulRn(v[4 * i + 3], inverse));
    words[i] = low | high << 16;
  }
  const int64_t row = int64_t{blockIdx.x} * p.num_lines * kCodeLineBytes;
  const int at = line * kCodeLineBytes + lane * 16 + place * kLaneCodes;
  device::StoreVec(reinterpret_cast<uint32_t*>(p.codes + row + at), words);
}

// The place of a scale of 128 inputs of this block's token.
MINISGL_DEVICE int64_t PlaceOfScale(int64_t num_tokens, int num_groups, int group) {
  const int64_t token = blockIdx.x, main = num_tokens / kBlocksMatmulUnit * kBlocksMatmulUnit;
  if (token < main) return group * main + token;
  return num_groups * main + group * kBlocksMatmulUnit + (token - main);
}

struct ScaleFactors {
  float scale, inverse;
};
MINISGL_DEVICE ScaleFactors ScaleFactorsOf(float most) {
  most = most > kLeastSize ? most : kLeastSize;
  return {device::DivRn(most, kMostE4M3), device::DivRn(kMostE4M3, most)};
}

// Rounds the block's token, of `num_tokens`. load(first, v): its inputs from `first` on, zeros past
// the last, each rounded to the activations' type; it is called a second time where all inputs have
// one scale. Shared memory: a float for each warp, and one.
template <typename Load>
MINISGL_DEVICE void ScaleRow(const ScaledInput& p, int64_t num_tokens, Shared<float> scratch,
                             const Load& load) {
  const int padded = p.num_lines * kCodeLineBytes;
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x) * kChunk;
  if (p.rounding == InputRounding::kGroups) {
    const int num_groups =
        (p.num_in + static_cast<int>(kScaledInputs) - 1) / static_cast<int>(kScaledInputs);
    // Whole warps stay together: half of one has a group.
    for (int begin = thread / kWarpSize * kWarpSize * kChunk; begin < padded; begin += step) {
      const int first = begin + thread % kWarpSize * kChunk;
      float v[kChunk] = {};
      if (first < p.num_in) load(first, v);
      float most = LargestOf(v, 0);
#pragma unroll
      for (int offset = kScaleGroupThreads / 2; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(device::kAllLanes, most, offset);
        most = other > most ? other : most;
      }
      const ScaleFactors factors = ScaleFactorsOf(most);
      if (first < padded) StoreCodes(p, first, factors.inverse, v);
      const int group = first / static_cast<int>(kScaledInputs);
      if (first % kScaledInputs == 0 && group < num_groups) {
        p.scales[PlaceOfScale(num_tokens, num_groups, group)] = factors.scale;
      }
    }
    return;
  }
  ScaleFactors factors = {p.fixed_scale, device::DivRn(1.0f, p.fixed_scale)};
  if (p.rounding == InputRounding::kToken) {
    float most = 0;
    for (int first = thread * kChunk; first < p.num_in; first += step) {
      float v[kChunk];
      load(first, v);
      most = LargestOf(v, most);
    }
    factors = ScaleFactorsOf(device::BlockMax(most, 0.0f, scratch));
  }
  if (thread == 0) p.scales[blockIdx.x] = factors.scale;
  for (int first = thread * kChunk; first < padded; first += step) {
    float v[kChunk] = {};
    if (first < p.num_in) load(first, v);
    StoreCodes(p, first, factors.inverse, v);
  }
}

struct ScaleInputKernelParams {
  ScaledInput out;
  const void* x;
  int64_t num_tokens;
  bool aligned;
};

// Grid (tokens, of kGroups rounded up to 4), block at most 512. Traffic: T * K * (2 + 1) bytes, and
// x a second time from the caches where a token has one scale.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kScaleThreadsMax, 1)
    ScaleInputKernel(MINISGL_GRID_CONSTANT ScaleInputKernelParams p) {
  SharedArena arena;
  const Shared<float> scratch = arena.Take<float>(kWarpSize + 1);
  GridRelease();
  GridWait();
  const bool exists = blockIdx.x < p.num_tokens;
  const T* const row = static_cast<const T*>(p.x) + int64_t{blockIdx.x} * p.out.num_in;
  ScaleRow(p.out, p.num_tokens, scratch, [&](int first, float(&v)[kChunk]) {
    if (exists) LoadChunk(row + first, p.out.num_in - first, p.aligned, v);
  });
}

struct ScaledNormKernelParams {
  NormKernelParams norm;
  ScaledInput out;
};

// Grid (tokens, of kGroups rounded up to 4), block and order of sums as of the norm alone. Traffic:
// of the norm, with one byte for an element of its output.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kNormThreadsMax, 1)
    ScaledNormKernel(MINISGL_GRID_CONSTANT ScaledNormKernelParams params) {
  const NormParams& p = params.norm.norm;
  SharedArena arena;
  const Shared<float> sums = arena.Take<float>(kWarpSize);
  const Shared<float> centers = arena.Take<float>(kWarpSize);
  const Shared<float> scratch = arena.Take<float>(kWarpSize + 1);
  GridRelease();
  float weight[kNormChunksMax][kChunk];
  LoadNormWeights(params.norm, 0, weight);
  GridWait();
  const bool exists = blockIdx.x < p.num_tokens;
  const int64_t row = int64_t{blockIdx.x} * p.width;
  float v[kNormChunksMax][kChunk] = {};
  if (exists) {
    LoadNormRow<T>(params.norm, row, row, v);
    const float* const mean = p.mean_squares == nullptr ? nullptr : p.mean_squares + blockIdx.x;
    ForNormRow(params.norm, 0, mean, weight, sums, centers, v,
               [](int64_t, int64_t, float(&values)[kChunk]) { RoundToType<T>(values); });
  }
  const int step = static_cast<int>(blockDim.x) * kChunk;
  ScaleRow(params.out, p.num_tokens, scratch, [&](int first, float(&values)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float value = first < step ? v[0][i] : v[1][i];
      values[i] = first + i < params.out.num_in ? value : 0.0f;
    }
  });
}

struct ScaledActivateKernelParams {
  ActivateParams activate;
  ScaledInput out;
  bool aligned;
};

// Grid and block of ScaleInputKernel. Traffic: of the activation alone, a byte more for an element,
// and the output a second time from the caches.
template <typename T, bool EXACT_GELU>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kScaleThreadsMax, 1)
    ScaledActivateKernel(MINISGL_GRID_CONSTANT ScaledActivateKernelParams params) {
  const ActivateParams& p = params.activate;
  SharedArena arena;
  const Shared<float> scratch = arena.Take<float>(kWarpSize + 1);
  GridRelease();
  GridWait();
  T* const out = p.out.as<T>() + int64_t{blockIdx.x} * p.width;
  const bool exists = blockIdx.x < p.num_tokens;
  if (exists) {
    for (int64_t first = threadIdx.x * kChunk; first < p.width; first += blockDim.x * kChunk) {
      ActivateChunk<T, EXACT_GELU>(p, params.aligned, first, p.width - first);
    }
  }
  // A thread reads the chunks that it has written.
  ScaleRow(params.out, p.num_tokens, scratch, [&](int first, float(&v)[kChunk]) {
    if (exists) LoadChunk(out + first, p.width - first, params.aligned, v);
  });
}

// Threads for rows of so many lines.
unsigned ScaleThreads(const ScaledInput& input) {
  const int64_t chunks = int64_t{input.num_lines} * kCodeLineBytes / kChunk;
  const int64_t warps = CeilDiv<int64_t>(chunks, kWarpSize);
  return static_cast<unsigned>(std::min<int64_t>(warps * kWarpSize, kScaleThreadsMax));
}

LaunchShape ScaledShape(const ScaledInput& input, int64_t num_tokens, unsigned threads,
                        int arrays) {
  return {.grid = {static_cast<unsigned>(RowsOfScaled(input.rounding, num_tokens))},
          .block = {threads},
          .shared_bytes = static_cast<size_t>(arrays) * (kWarpSize + 4) * sizeof(float),
          .programmatic = true};
}

}  // namespace

CudaError LaunchScaleInput(const LaunchContext& context, const ScaledInput& input,
                           ConstActivationPtr x, int64_t num_tokens) {
  const ScaleInputKernelParams p = {.out = input,
                                    .x = x.data,
                                    .num_tokens = num_tokens,
                                    .aligned = input.num_in % kChunk == 0 && IsAligned16(x.data)};
  const LaunchShape shape = ScaledShape(input, num_tokens, ScaleThreads(input), 1);
  return DispatchHalf(x.dtype,
                      [&]<typename T>() { return Launch(context, shape, ScaleInputKernel<T>, p); });
}

bool NormTakesScaling(const NormParams& norm) {
  const bool has_groups = norm.group_width != 0 && norm.group_width != norm.width;
  const bool is_apart = norm.stride != 0 && norm.stride != norm.width;
  return !has_groups && !is_apart && norm.out.data != nullptr && norm.width <= kNormWidthMax &&
         norm.out.dtype != DType::kF32 &&
         (norm.x.data == nullptr || norm.x.dtype == norm.out.dtype);
}

CudaError LaunchScaledNorm(const LaunchContext& context, const ScaledInput& input,
                           const NormParams& norm) {
  ScaledNormKernelParams p = {.norm = {.norm = norm, .aligned = false}, .out = input};
  p.norm.norm.group_width = p.norm.norm.stride = norm.width;
  MINISGL_CHECK(NormTakesScaling(norm) && norm.width == input.num_in,
                "a norm of {} before a product of {} inputs", norm.width, input.num_in);
  p.norm.aligned = norm.width % kChunk == 0 && IsAligned16(norm.x.data) &&
                   IsAligned16(norm.residual) && IsAligned16(norm.weight) && IsAligned16(norm.bias);
  const LaunchShape shape = ScaledShape(input, norm.num_tokens, NormThreads(norm.width), 3);
  return DispatchHalf(norm.out.dtype,
                      [&]<typename T>() { return Launch(context, shape, ScaledNormKernel<T>, p); });
}

CudaError LaunchScaledActivate(const LaunchContext& context, const ScaledInput& input,
                               const ActivateParams& params) {
  MINISGL_CHECK(params.activation != Activation::kXielu && params.width == input.num_in,
                "an activation of {} before a product of {} inputs", params.width, input.num_in);
  const ScaledActivateKernelParams p = {
      .activate = params, .out = input, .aligned = ActivateIsAligned(params)};
  const LaunchShape shape = ScaledShape(input, params.num_tokens, ScaleThreads(input), 1);
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    if (params.activation == Activation::kGelu) {
      return Launch(context, shape, ScaledActivateKernel<T, true>, p);
    }
    return Launch(context, shape, ScaledActivateKernel<T, false>, p);
  });
}

}  // namespace minisgl::cuda
