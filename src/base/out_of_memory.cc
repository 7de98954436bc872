#include "minisgl/base/out_of_memory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "minisgl/base/setting.h"
#include "minisgl/base/status.h"

namespace minisgl {
namespace {

std::terminate_handler g_terminate_before = nullptr;

void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    ExitOutOfMemory();
  } catch (...) {
    // Handled by the previous handler below.
  }
  g_terminate_before();
}

}  // namespace

void PrintOutOfMemory() noexcept {
  char line[256];
  const auto end =
      fmt::format_to_n(line, sizeof(line), "minisgl: out of memory; lower {}, {} or {}\n",
                       SettingName(Setting::kMemoryRatio), SettingName(Setting::kMaxSeqLen),
                       SettingName(Setting::kMaxRunningRequests));
  const ssize_t ignored = write(STDERR_FILENO, line, std::min(end.size, sizeof(line)));
  static_cast<void>(ignored);
}

void ExitOutOfMemory() noexcept {
  PrintOutOfMemory();
  _exit(ExitCode(StatusCode::kOutOfMemory));
}

void InstallOutOfMemoryHandler() { g_terminate_before = std::set_terminate(OnTerminate); }

}  // namespace minisgl
