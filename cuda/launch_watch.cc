// See launch_watch.h.
#include "launch_watch.h"

#include <cxxabi.h>
#include <fmt/core.h>

#include <cstdlib>
#include <string_view>

namespace minisgl::cuda {

void LaunchWatch::Enter(std::string operation) {
  operation_ = std::move(operation);
  kernel_.clear();
}

CudaError LaunchWatch::BeforeLaunch() {
  ++num_launches_;
  return timer_ == nullptr ? kCudaSuccess : timer_->Begin();
}

CudaError LaunchWatch::AfterLaunch(const void* kernel) {
  kernel_ = kernel == nullptr ? "" : ShortKernelName(api_->KernelSymbol(kernel));
  if (timer_ != nullptr) {
    const CudaError error =
        timer_->End(kernel_.empty() ? operation_ : fmt::format("{}: {}", operation_, kernel_));
    if (error != kCudaSuccess) return error;
  }
  return waits_ ? api_->StreamSynchronize(stream_) : kCudaSuccess;
}

std::string LaunchWatch::Last() const {
  return fmt::format("{} ({}{}launch {})", operation_, kernel_, kernel_.empty() ? "" : ", ",
                     num_launches_);
}

std::string ShortKernelName(const std::string& symbol) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (demangled == nullptr) return symbol;
  std::string name = demangled;
  std::free(demangled);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (size_t at = 0; (at = name.find(kAnonymous)) != std::string::npos;) {
    name.erase(at, kAnonymous.size());
  }
  name.erase(std::min(name.find_first_of("<("), name.size()));
  const size_t before = name.find_last_of(": ");
  return before == std::string::npos ? name : name.substr(before + 1);
}

}  // namespace minisgl::cuda
