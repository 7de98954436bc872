// Copies between pageable host memory and the device through two pinned chunks, so that the host
// fills one (reads a file, converts) while the other is copied.
//
// Copies run on one stream, in the order of the calls; a Write returns once its source was read.
// Chunks and events are made at the first use. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "cuda_handles.h"

namespace minisgl {

// A call of CUDA that failed; none where error is kCudaSuccess.
struct CudaFailure {
  CudaError error = kCudaSuccess;
  const char* call = "";

  bool ok() const { return error == kCudaSuccess; }
};

class Staging {
 public:
  // At about 25 GB/s a chunk takes 0.3 ms, a hundred times what starting a copy takes.
  static constexpr size_t kChunkBytes = size_t{8} << 20;

  // Puts bytes [offset, offset + num_bytes) of what is copied into `chunk`.
  using Fill = std::function<void(std::byte* chunk, size_t offset, size_t num_bytes)>;
  // Is given those bytes; false stops.
  using Take = std::function<bool(const std::byte* chunk, size_t offset, size_t num_bytes)>;

  Staging(std::shared_ptr<CudaApi> api, CudaStream stream);

  CudaFailure Write(void* dst, size_t num_bytes, const Fill& fill);
  // Waits for the stream.
  CudaFailure Read(const void* src, size_t num_bytes, const Take& take);

 private:
  struct Chunk {
    OwnedHostMemory memory;
    OwnedEvent copied;       // behind the last copy from it
    bool is_copied = false;  // recorded, and not waited for since
    std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
  };

  // The next chunk, not in use by any copy.
  CudaFailure Next(Chunk** chunk);

  const std::shared_ptr<CudaApi> api_;
  const CudaStream stream_;
  std::array<Chunk, 2> chunks_;
  size_t next_ = 0;
};

}  // namespace minisgl
