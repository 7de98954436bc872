// The streams beside the compute stream, on which copies run, and the order between all three.
//
// Uploads begin at once, except that they follow what Allocate and Upload of CudaOps queued on the
// compute stream; the compute stream waits for each. Downloads follow all that is queued on the
// compute stream, which does not wait for them. For one thread.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda_handles.h"
#include "staging.h"

namespace minisgl::cuda {

class CopyStreams {
 public:
  // `sync`: each copy is waited for, so that its fault is its own.
  CopyStreams(std::shared_ptr<CudaApi> api, CudaStream compute, bool sync)
      : api_(std::move(api)), compute_(compute), sync_(sync) {}

  // Called once, before any other function.
  CudaFailure Open();

  // Something was queued on the compute stream; `memory`: by Allocate or Upload.
  void Queued(bool memory = false) {
    downloads_wait_ = true;
    uploads_wait_ = uploads_wait_ || memory;
  }
  CudaFailure ToDevice(void* device, const void* host, size_t num_bytes);
  CudaFailure ToHost(void* host, const void* device, size_t num_bytes);
  // Records `event` after all that is queued on the compute stream, and after the downloads since
  // the last Record.
  CudaFailure Record(CudaEvent event);
  // Waits for all three streams; returns the first failure.
  CudaFailure Synchronize();

 private:
  CudaError Copy(void* dst, const void* src, size_t num_bytes, CudaStream stream);
  // Makes `waiting` wait for all that is queued on `stream`.
  CudaFailure MakeWait(CudaStream waiting, CudaStream stream, const OwnedEvent& event);
  CudaFailure MakeDownloadsWait();

  const std::shared_ptr<CudaApi> api_;
  const CudaStream compute_;
  const bool sync_;
  OwnedStream uploads_, downloads_;
  OwnedEvent computed_, uploaded_;
  bool uploads_wait_ = false;    // uploads have to wait for the compute stream
  bool downloads_wait_ = false;  // downloads have to
  bool has_downloads_ = false;   // since the last Record
};

}  // namespace minisgl::cuda
