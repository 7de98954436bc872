// See copy_streams.h.
#include "copy_streams.h"

namespace minisgl::cuda {

CudaFailure CopyStreams::Open() {
  for (OwnedStream* const made : {&uploads_, &downloads_}) {
    CudaStream stream = nullptr;
    const CudaError error = api_->StreamCreate(&stream);
    if (error != kCudaSuccess) return {error, "cudaStreamCreate"};
    *made = OwnedStream(api_, stream);
  }
  for (OwnedEvent* const made : {&computed_, &uploaded_}) {
    CudaEvent event = nullptr;
    const CudaError error = api_->EventCreate(&event, /*timing=*/false);
    if (error != kCudaSuccess) return {error, "cudaEventCreate"};
    *made = OwnedEvent(api_, event);
  }
  return {};
}

CudaFailure CopyStreams::MakeWait(CudaStream waiting, CudaStream stream, const OwnedEvent& event) {
  CudaError error = api_->EventRecord(event.get(), stream);
  if (error != kCudaSuccess) return {error, "cudaEventRecord"};
  error = api_->StreamWaitEvent(waiting, event.get());
  return {error, "cudaStreamWaitEvent"};
}

CudaError CopyStreams::Copy(void* dst, const void* src, size_t num_bytes, CudaStream stream) {
  const CudaError error = api_->CopyAsync(dst, src, num_bytes, stream);
  return error == kCudaSuccess && sync_ ? api_->StreamSynchronize(stream) : error;
}

CudaFailure CopyStreams::ToDevice(void* device, const void* host, size_t num_bytes) {
  if (uploads_wait_) {
    const CudaFailure failure = MakeWait(uploads_.get(), compute_, computed_);
    if (!failure.ok()) return failure;
    uploads_wait_ = false;
  }
  const CudaError error = Copy(device, host, num_bytes, uploads_.get());
  if (error != kCudaSuccess) return {error, "cudaMemcpyAsync to the device"};
  downloads_wait_ = true;
  return MakeWait(compute_, uploads_.get(), uploaded_);
}

CudaFailure CopyStreams::MakeDownloadsWait() {
  if (!downloads_wait_) return {};
  const CudaFailure failure = MakeWait(downloads_.get(), compute_, computed_);
  downloads_wait_ = !failure.ok();
  return failure;
}

CudaFailure CopyStreams::ToHost(void* host, const void* device, size_t num_bytes) {
  const CudaFailure failure = MakeDownloadsWait();
  if (!failure.ok()) return failure;
  has_downloads_ = true;
  const CudaError error = Copy(host, device, num_bytes, downloads_.get());
  return {error, "cudaMemcpyAsync to the host"};
}

// After downloads on their stream, once that waits for the compute stream.
CudaFailure CopyStreams::Record(CudaEvent event) {
  CudaStream stream = compute_;
  if (has_downloads_) {
    const CudaFailure failure = MakeDownloadsWait();
    if (!failure.ok()) return failure;
    stream = downloads_.get();
    has_downloads_ = false;
  }
  return {api_->EventRecord(event, stream), "cudaEventRecord"};
}

CudaFailure CopyStreams::Synchronize() {
  CudaFailure first;
  for (const CudaStream stream : {compute_, uploads_.get(), downloads_.get()}) {
    if (stream == nullptr) continue;
    const CudaError error = api_->StreamSynchronize(stream);
    if (first.ok()) first = {error, "cudaStreamSynchronize"};
  }
  if (first.ok()) uploads_wait_ = downloads_wait_ = has_downloads_ = false;
  return first;
}

}  // namespace minisgl::cuda
