#include "synced_files.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <system_error>

namespace minisgl {
namespace {

std::mutex g_synced_mutex;
bool g_notes_syncs = false;
std::vector<std::string> g_synced_paths;

}  // namespace

SyncedFiles::SyncedFiles() {
  const std::lock_guard lock(g_synced_mutex);
  g_notes_syncs = true;
  g_synced_paths.clear();
}
SyncedFiles::~SyncedFiles() {
  const std::lock_guard lock(g_synced_mutex);
  g_notes_syncs = false;
}

std::vector<std::string> SyncedFiles::Paths() const {
  const std::lock_guard lock(g_synced_mutex);
  return g_synced_paths;
}

}  // namespace minisgl

// Replaces the function of the C library.
extern "C" int fsync(int fd) {
  {
    const std::lock_guard lock(minisgl::g_synced_mutex);
    std::error_code error;
    if (minisgl::g_notes_syncs) {
      minisgl::g_synced_paths.push_back(
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error).string());
    }
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}
