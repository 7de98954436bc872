// Matrix products in plain loops.
#include "emulator/emulated_matmul.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "emulator/emulator.h"

namespace minisgl::cuda::emulator {
namespace {

std::vector<float> ToFloats(const void* data, int64_t count, DType dtype) {
  std::vector<float> floats(static_cast<size_t>(count));
  const uint16_t* const bits = static_cast<const uint16_t*>(data);
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = dtype == DType::kF32    ? static_cast<const float*>(data)[i]
                : dtype == DType::kBF16 ? Bf16ToFloat(bits[i])
                                        : F16ToFloat(bits[i]);
  }
  return floats;
}

void Store(double sum, DType dtype, void* out, int64_t i) {
  const float value = static_cast<float>(sum);
  if (dtype == DType::kF32) {
    static_cast<float*>(out)[i] = value;
  } else {
    static_cast<uint16_t*>(out)[i] = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }
}

// Four independent sums: a single sum is limited by the latency of addition.
double Dot(const float* a, const float* b, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(a[i + j]) * b[i + j];
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(a[i]) * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Fails with what NVIDIA's library would refuse.
Status CheckScaled(const MatmulShape& shape, const ScaledOperands& in, const void* out) {
  const auto width = static_cast<int64_t>(DTypeBytes(shape.out_dtype));
  const bool has_blocks = shape.scales == MatmulScales::kBlocks;
  const auto refuse = [&](const char* why) {
    return MakeStatus(StatusCode::kInternal, "a product of {} x {} x {} of e4m3: {}",
                      shape.num_tokens, shape.num_out, shape.num_in, why);
  };
  if (shape.dtype != DType::kE4M3 || shape.scales == MatmulScales::kNone) return refuse("its type");
  if (shape.out_dtype == DType::kE4M3) return refuse("the type of its output");
  for (const int64_t bytes : {shape.num_in, shape.num_out * width, shape.row_stride() * width}) {
    if (bytes % 16 != 0) return refuse("a row of no multiple of 16 bytes");
  }
  for (const void* const p : {in.x, in.weight, static_cast<const void*>(in.x_scales),
                              static_cast<const void*>(in.weight_scales), out}) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return refuse("an address");
  }
  if (has_blocks && (shape.num_tokens % 4 != 0 || shape.num_out % 4 != 0)) {
    return refuse("blocks of no multiple of 4 rows");
  }
  return Status();
}

// Sums of a block of inputs with its scales; of vectors there is one block. In plain loops over the
// manual's formulas.
void RunScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                     CudaStream stream) {
  const bool has_blocks = shape.scales == MatmulScales::kBlocks;
  const int64_t tokens = shape.num_tokens, num_out = shape.num_out, num_in = shape.num_in;
  const int64_t block = has_blocks ? 128 : num_in, blocks = (num_in + block - 1) / block;
  const int64_t stride = (blocks + 3) / 4 * 4;  // of weight blocks
  const int64_t x_scales = has_blocks ? blocks * tokens : tokens;
  const int64_t weight_scales = has_blocks ? (num_out + 127) / 128 * stride : num_out;
  const GlobalRange reads[] = {
      {in.x, static_cast<size_t>(tokens * num_in)},
      {in.weight, static_cast<size_t>(num_out * num_in)},
      {in.x_scales, static_cast<size_t>(x_scales) * sizeof(float)},
      {in.weight_scales, static_cast<size_t>(weight_scales) * sizeof(float)}};
  const GlobalRange writes = {out,
                              static_cast<size_t>((tokens - 1) * shape.row_stride() + num_out) *
                                  DTypeBytes(shape.out_dtype)};
  {
    const Turn turn;
    for (const GlobalRange& range : {reads[0], reads[1], reads[2], reads[3], writes}) {
      if (!InGlobal(range.begin, range.num_bytes)) {
        throw Fault("a product of e4m3: an operand is not within device memory");
      }
    }
  }
  RecordKernel("(matrix product)", stream, {reads[0], reads[1], reads[2], reads[3]}, {writes});
  const auto* const x = static_cast<const uint8_t*>(in.x);
  const auto* const weight = static_cast<const uint8_t*>(in.weight);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t o = 0; o < num_out; ++o) {
      double sum = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        double part = 0;
        for (int64_t k = b * block; k < std::min((b + 1) * block, num_in); ++k) {
          part += static_cast<double>(E4M3ToFloat(x[t * num_in + k])) *
                  static_cast<double>(E4M3ToFloat(weight[o * num_in + k]));
        }
        const float of_x = in.x_scales[has_blocks ? b * tokens + t : t];
        const float of_weight = in.weight_scales[has_blocks ? o / 128 * stride + b : o];
        sum += static_cast<double>(of_x) * static_cast<double>(of_weight) * part;
      }
      Store(sum, shape.out_dtype, out, t * shape.row_stride() + o);
    }
  }
}

void RunMatmul(const MatmulShape& shape, const void* x, const void* weight, void* out,
               CudaStream stream) {
  const auto check = [](const void* p, int64_t count, DType dtype, const char* what) {
    const Turn turn;
    if (!InGlobal(p, static_cast<size_t>(count) * DTypeBytes(dtype))) {
      throw Fault(fmt::format("a matrix product: {} is not within device memory", what));
    }
  };
  check(x, shape.num_tokens * shape.num_in, shape.dtype, "x");
  check(weight, shape.num_out * shape.num_in, shape.dtype, "weight");
  const int64_t out_count =
      shape.num_tokens == 0 ? 0 : (shape.num_tokens - 1) * shape.row_stride() + shape.num_out;
  check(out, out_count, shape.out_dtype, "out");
  const auto range = [](const void* p, int64_t count, DType dtype) {
    return GlobalRange{p, static_cast<size_t>(count) * DTypeBytes(dtype)};
  };
  RecordKernel("(matrix product)", stream,
               {range(x, shape.num_tokens * shape.num_in, shape.dtype),
                range(weight, shape.num_out * shape.num_in, shape.dtype)},
               {range(out, out_count, shape.out_dtype)});
  const std::vector<float> rows = ToFloats(x, shape.num_tokens * shape.num_in, shape.dtype);
  const std::vector<float> columns = ToFloats(weight, shape.num_out * shape.num_in, shape.dtype);
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    for (int64_t o = 0; o < shape.num_out; ++o) {
      Store(Dot(&rows[static_cast<size_t>(t * shape.num_in)],
                &columns[static_cast<size_t>(o * shape.num_in)], shape.num_in),
            shape.out_dtype, out, t * shape.row_stride() + o);
    }
  }
}

}  // namespace

void EmulatedMatmul::FailAt(int n, Status status) {
  fail_in_ = n;
  failure_ = std::move(status);
}

Status EmulatedMatmul::Prepare(const MatmulShape& shape) {
  if (shape.num_tokens < 0 || shape.num_out <= 0 || shape.num_in <= 0) {
    return MakeStatus(StatusCode::kInternal, "no matrix product of {} x {} x {}", shape.num_tokens,
                      shape.num_out, shape.num_in);
  }
  const std::array<int64_t, 4> key = {shape.num_tokens, shape.num_out, shape.num_in,
                                      static_cast<int64_t>(shape.scales)};
  if (capturing_ && !seen_.contains(key)) {
    return MakeStatus(StatusCode::kInternal, "a product of {} x {} x {} is new in a capture",
                      shape.num_tokens, shape.num_out, shape.num_in);
  }
  seen_.insert(key);
  return Status();
}

Status EmulatedMatmul::Matmul(const MatmulShape& shape, const void* x, const void* weight,
                              void* out, CudaStream stream) {
  ++num_products_;
  if (fail_in_ > 0 && --fail_in_ == 0) return failure_;
  MINISGL_RETURN_IF_ERROR(Prepare(shape));
  if (shape.num_tokens == 0) return Status();
  api_->Enqueue(stream, [=] { RunMatmul(shape, x, weight, out, stream); });
  return Status();
}

Status EmulatedMatmul::ScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                                    CudaStream stream) {
  ++num_products_;
  ++num_scaled_products_;
  if (fail_in_ > 0 && --fail_in_ == 0) return failure_;
  MINISGL_RETURN_IF_ERROR(CheckScaled(shape, in, out));
  MINISGL_RETURN_IF_ERROR(Prepare(shape));
  if (shape.num_tokens == 0) return Status();
  api_->Enqueue(stream, [=] { RunScaledMatmul(shape, in, out, stream); });
  return Status();
}

}  // namespace minisgl::cuda::emulator
