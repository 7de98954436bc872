// See host_handover.h.
#include "host_handover.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cuda {

HostHandover::~HostHandover() { static_cast<void>(HostHandover::Synchronize()); }

namespace {

struct Places {
  explicit Places(const DeviceLimits& limits, DType dtype) {
    const auto tokens = static_cast<size_t>(limits.max_tokens);
    const size_t row_bytes = static_cast<size_t>(limits.host_expert_width) * DTypeBytes(dtype);
    out = (tokens * row_bytes + 63) / 64 * 64;
    experts = 2 * out;
    const size_t choices = tokens * static_cast<size_t>(limits.num_chosen);
    shares = experts + choices * sizeof(int32_t);
    num_real = shares + choices * sizeof(float);
    num_bytes = num_real + sizeof(int32_t);
  }

  size_t out, experts, shares, num_real, num_bytes;  // x is at 0
};

}  // namespace

size_t HostHandover::PinnedBytes(const DeviceLimits& limits, DType dtype) {
  return Places(limits, dtype).num_bytes;
}

CudaFailure HostHandover::Open(const DeviceLimits& limits) {
  CudaStream stream = nullptr;
  CudaError error = api_->StreamCreate(&stream);
  if (error != kCudaSuccess) return {error, "cudaStreamCreate"};
  side_ = OwnedStream(api_, stream);
  for (OwnedEvent* const made : {&copied_, &computed_}) {
    CudaEvent event = nullptr;
    error = api_->EventCreate(&event, /*timing=*/false);
    if (error != kCudaSuccess) return {error, "cudaEventCreate"};
    *made = OwnedEvent(api_, event);
  }
  const Places places(limits, dtype_);
  void* memory = nullptr;
  error = api_->MallocHost(&memory, places.num_bytes);
  if (error != kCudaSuccess) return {error, "cudaMallocHost for experts on the CPU"};
  memory_ =
      std::shared_ptr<void>(memory, [api = api_](void* p) { static_cast<void>(api->FreeHost(p)); });
  std::memset(memory, 0, places.num_bytes);
  x_ = static_cast<std::byte*>(memory);
  out_ = x_ + places.out;
  experts_ = reinterpret_cast<int32_t*>(x_ + places.experts);
  shares_ = reinterpret_cast<float*>(x_ + places.shares);
  num_real_ = reinterpret_cast<int32_t*>(x_ + places.num_real);
  return {};
}

CudaFailure HostHandover::Begin(const HostExpertsParams& p) {
  MINISGL_CHECK(x_ != nullptr, "experts on the host without memory for them");
  MINISGL_CHECK(!is_begun_, "two layers' experts at once");
  const size_t choices = static_cast<size_t>(p.num_tokens) * static_cast<size_t>(p.num_chosen);
  const size_t rows_bytes = static_cast<size_t>(p.num_tokens * p.width) * DTypeBytes(dtype_);
  const bool has_padding = p.num_real != nullptr;
  std::unique_ptr<Call>& call = calls_[{p.layer, p.num_tokens, has_padding}];
  if (call == nullptr) {
    call = std::make_unique<Call>(Call{this, p.layer, p.num_tokens, p.width, has_padding});
  }
  struct {
    void* dst;
    const void* src;
    size_t num_bytes;
  } const copies[] = {{x_, p.x.data, rows_bytes},
                      {experts_, p.experts, choices * sizeof(int32_t)},
                      {shares_, p.shares, choices * sizeof(float)},
                      {num_real_, p.num_real, has_padding ? sizeof(int32_t) : 0}};
  for (const auto& [dst, src, num_bytes] : copies) {
    if (num_bytes == 0) continue;
    const CudaError error = api_->CopyAsync(dst, src, num_bytes, compute_);
    if (error != kCudaSuccess) return {error, "cudaMemcpyAsync to experts on the CPU"};
  }
  CudaError error = api_->EventRecord(copied_.get(), compute_);
  if (error != kCudaSuccess) return {error, "cudaEventRecord"};
  error = api_->StreamWaitEvent(side_.get(), copied_.get());
  if (error != kCudaSuccess) return {error, "cudaStreamWaitEvent"};
  error = api_->LaunchHostFunction(side_.get(), RunCall, call.get());
  if (error != kCudaSuccess) return {error, "cudaLaunchHostFunc"};
  error = api_->EventRecord(computed_.get(), side_.get());
  if (error != kCudaSuccess) return {error, "cudaEventRecord"};
  is_begun_ = true;
  sum_ = p.out.data;
  sum_bytes_ = rows_bytes;
  return {};
}

CudaFailure HostHandover::End() {
  if (!std::exchange(is_begun_, false)) return {};
  CudaError error = api_->StreamWaitEvent(compute_, computed_.get());
  if (error != kCudaSuccess) return {error, "cudaStreamWaitEvent"};
  error = api_->CopyAsync(sum_, out_, sum_bytes_, compute_);
  return {error, "cudaMemcpyAsync from experts on the CPU"};
}

CudaFailure HostHandover::Synchronize() {
  if (side_.get() == nullptr) return {};
  return {api_->StreamSynchronize(side_.get()), "cudaStreamSynchronize"};
}

Status HostHandover::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void HostHandover::RunCall(void* data) noexcept {
  const Call& call = *static_cast<const Call*>(data);
  HostHandover& own = *call.handover;
  Status fault = own.fault();
  if (fault.ok()) {
    try {
      own.Compute(call);
    } catch (const std::bad_alloc&) {
      fault = Status(StatusCode::kOutOfMemory, "experts on the CPU: the host ran out of memory");
    } catch (const std::exception& error) {
      fault = MakeStatus(StatusCode::kInternal, "experts on the CPU failed ({})",
                         Visible(error.what()));
    } catch (...) {
      fault = Status(StatusCode::kInternal, "experts on the CPU failed");
    }
  }
  if (fault.ok()) return;
  // What follows reads zeros, and the step fails when it is waited for.
  std::memset(own.out_, 0,
              static_cast<size_t>(call.num_tokens * call.width) * DTypeBytes(own.dtype_));
  const std::lock_guard lock(own.mutex_);
  if (own.fault_.ok()) own.fault_ = std::move(fault);
}

void HostHandover::Compute(const Call& call) {
  const int64_t num_real =
      call.has_padding ? std::min<int64_t>(*num_real_, call.num_tokens) : call.num_tokens;
  const auto row_bytes = static_cast<size_t>(call.width) * DTypeBytes(dtype_);
  if (num_real > 0) {
    call.layer->Run({.x = {x_, dtype_},
                     .experts = experts_,
                     .shares = shares_,
                     .out = {out_, dtype_},
                     .num_tokens = num_real});
  }
  std::memset(out_ + static_cast<size_t>(num_real) * row_bytes, 0,
              static_cast<size_t>(call.num_tokens - num_real) * row_bytes);
}

}  // namespace minisgl::cuda
