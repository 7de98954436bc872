// See nccl_library.h.
#include "nccl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <chrono>

#include "minisgl/base/library_function.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cuda {
namespace {

bool FindAll(void* library, NcclLibrary* f) {
  return FindFunction(library, "ncclGetVersion", &f->get_version) &&
         FindFunction(library, "ncclGetErrorString", &f->error_string) &&
         FindFunction(library, "ncclGetLastError", &f->last_error) &&
         FindFunction(library, "ncclCommInitAll", &f->comm_init_all) &&
         FindFunction(library, "ncclCommDestroy", &f->comm_destroy) &&
         FindFunction(library, "ncclCommAbort", &f->comm_abort) &&
         FindFunction(library, "ncclCommGetAsyncError", &f->async_error) &&
         FindFunction(library, "ncclAllReduce", &f->all_reduce);
}

std::string VersionOf(int code) {
  // Up to 2.8 the major version counts thousands.
  const int major = code < 10'000 ? code / 1000 : code / 10'000;
  const int rest = code < 10'000 ? code % 1000 : code % 10'000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

// Why the library is of no use; "" if it has all functions and is new enough.
std::string WhyNot(void* loaded, const std::string& name, NcclLibrary* library) {
  if (loaded == nullptr || !FindAll(loaded, library)) {
    const char* const reason = dlerror();
    return reason != nullptr ? reason : name;
  }
  const NcclResult error = library->get_version(&library->version);
  if (error != kNcclSuccess) return fmt::format("{}: {}", name, library->ErrorText(error));
  if (library->version >= kNcclVersionMin) return "";
  return fmt::format("{} is NCCL {}, which is too old", name, library->VersionText());
}

}  // namespace

int64_t SteadyMs() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_start).count();
}

std::string NcclLibrary::VersionText() const { return VersionOf(version); }

std::string NcclLibrary::ErrorText(NcclResult error, NcclComm comm) const {
  const auto text = [](const char* found) { return Visible(found == nullptr ? "" : found, 300); };
  const std::string more = text(last_error(comm));
  return text(error_string(error)) + (more.empty() ? "" : fmt::format(" ({})", more));
}

// A loaded library is never unloaded: its threads and its kernels' code outlive their users.
Result<NcclLibrary> LoadNcclOf(const LibraryNames& names) {
  std::string reasons;
  for (const std::string& name : names.names) {
    NcclLibrary library;
    void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string why_not = WhyNot(loaded, name, &library);
    if (why_not.empty()) return library;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", why_not);
  }
  return UsageError(
      "{} nccl: NCCL cannot be loaded: {}; searched after the loader's folders: {}; install NCCL "
      "{} or newer (Python's package nvidia-nccl-cu13 or nvidia-nccl-cu12, or a distribution's "
      "libnccl2), put the folder that has it into LD_LIBRARY_PATH, or leave out {}",
      SettingName(Setting::kAllReduce), reasons, names.folders, VersionOf(kNcclVersionMin),
      SettingName(Setting::kAllReduce));
}

Result<NcclLibrary> LoadNccl() {
  const std::string sonames[] = {"libnccl.so.2"};
  return LoadNcclOf(FindLibrary(PlacesOfEnvironment(), sonames));
}

}  // namespace minisgl::cuda
