// Copies between pageable host memory and the device through two pinned chunks: the host fills one
// (reads a file, converts) while the other is copied.
//
// Copies run on one stream, in the order of the calls. Write returns when its source has been read.
// Chunks and events are made at first use. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "cuda_handles.h"

namespace minisgl::cuda {

// A failed call to CUDA; none if error is kCudaSuccess.
struct CudaFailure {
  CudaError error = kCudaSuccess;
  const char* call = "";

  bool ok() const { return error == kCudaSuccess; }
};

class Staging {
 public:
  // At about 25 GB/s copying a chunk takes 0.3 ms, a hundred times the cost of starting a copy.
  static constexpr size_t kChunkBytes = size_t{8} << 20;

  // Writes bytes [offset, offset + num_bytes) of the source to `chunk`.
  using Fill = std::function<void(std::byte* chunk, size_t offset, size_t num_bytes)>;
  // Takes those bytes; returns false to stop the Read.
  using Take = std::function<bool(const std::byte* chunk, size_t offset, size_t num_bytes)>;

  Staging(std::shared_ptr<CudaApi> api, CudaStream stream);

  CudaFailure Write(void* dst, size_t num_bytes, const Fill& fill);
  // Synchronizes the stream for each chunk.
  CudaFailure Read(const void* src, size_t num_bytes, const Take& take);

 private:
  struct Chunk {
    OwnedHostMemory memory;
    OwnedEvent copied;       // recorded after the last copy from it
    bool is_copied = false;  // `copied` was recorded and not waited for
    std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
  };

  // Sets `chunk` to the next chunk, after waiting for its last copy.
  CudaFailure Next(Chunk** chunk);

  const std::shared_ptr<CudaApi> api_;
  const CudaStream stream_;
  std::array<Chunk, 2> chunks_;
  size_t next_ = 0;
};

}  // namespace minisgl::cuda
