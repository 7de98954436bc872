#include "minisgl/base/out_of_memory.h"

#include <unistd.h>

#include <exception>
#include <string_view>

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
  constexpr std::string_view kLine =
      "minisgl: out of memory; lower --memory-ratio, --max-seq-len or --max-running-requests\n";
  const ssize_t ignored = write(STDERR_FILENO, kLine.data(), kLine.size());
  static_cast<void>(ignored);
}

void ExitOutOfMemory() noexcept {
  PrintOutOfMemory();
  _exit(ExitCode(StatusCode::kOutOfMemory));
}

void InstallOutOfMemoryHandler() { g_terminate_before = std::set_terminate(OnTerminate); }

}  // namespace minisgl
