// See staging.h.
#include "staging.h"

#include <algorithm>
#include <utility>

namespace minisgl::cuda {

Staging::Staging(std::shared_ptr<CudaApi> api, CudaStream stream)
    : api_(std::move(api)), stream_(stream) {}

CudaFailure Staging::Next(Chunk** chunk) {
  Chunk& next = chunks_[next_];
  if (next.copied.get() == nullptr) {
    CudaEvent event = nullptr;
    const CudaError error = api_->EventCreate(&event, /*timing=*/false);
    if (error != kCudaSuccess) return {error, "cudaEventCreate"};
    next.copied = OwnedEvent(api_, event);
  }
  if (next.memory.get() == nullptr) {
    void* memory = nullptr;
    const CudaError error = api_->MallocHost(&memory, kChunkBytes);
    if (error != kCudaSuccess) return {error, "cudaMallocHost of a chunk for copies"};
    next.memory = OwnedHostMemory(api_, memory);
  }
  if (std::exchange(next.is_copied, false)) {
    const CudaError error = api_->EventSynchronize(next.copied.get());
    if (error != kCudaSuccess) return {error, "cudaEventSynchronize"};
  }
  next_ = (next_ + 1) % chunks_.size();
  *chunk = &next;
  return {};
}

CudaFailure Staging::Write(void* dst, size_t num_bytes, const Fill& fill) {
  for (size_t offset = 0; offset < num_bytes; offset += kChunkBytes) {
    const size_t part = std::min(kChunkBytes, num_bytes - offset);
    Chunk* chunk = nullptr;
    if (const CudaFailure failure = Next(&chunk); !failure.ok()) return failure;
    fill(chunk->data(), offset, part);
    CudaError error =
        api_->CopyAsync(static_cast<std::byte*>(dst) + offset, chunk->data(), part, stream_);
    if (error != kCudaSuccess) return {error, "cudaMemcpyAsync to the device"};
    error = api_->EventRecord(chunk->copied.get(), stream_);
    if (error != kCudaSuccess) return {error, "cudaEventRecord"};
    chunk->is_copied = true;
  }
  return {};
}

CudaFailure Staging::Read(const void* src, size_t num_bytes, const Take& take) {
  for (size_t offset = 0; offset < num_bytes; offset += kChunkBytes) {
    const size_t part = std::min(kChunkBytes, num_bytes - offset);
    Chunk* chunk = nullptr;
    if (const CudaFailure failure = Next(&chunk); !failure.ok()) return failure;
    CudaError error =
        api_->CopyAsync(chunk->data(), static_cast<const std::byte*>(src) + offset, part, stream_);
    if (error != kCudaSuccess) return {error, "cudaMemcpyAsync to the host"};
    error = api_->StreamSynchronize(stream_);
    if (error != kCudaSuccess) return {error, "cudaStreamSynchronize"};
    if (!take(chunk->data(), offset, part)) break;
  }
  return {};
}

}  // namespace minisgl::cuda
