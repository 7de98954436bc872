// Matrix products in plain loops.
#include "emulator/emulated_matmul.h"

#include <fmt/core.h>

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
  const std::array<int64_t, 3> key = {shape.num_tokens, shape.num_out, shape.num_in};
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

}  // namespace minisgl::cuda::emulator
