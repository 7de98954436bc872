// See folder.h.
#include "minisgl/base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include "minisgl/base/utf8.h"

namespace minisgl {

bool IsListed(const std::string& path) {
  struct stat info {};
  // A path that cannot be examined counts as existing: opening it gives the reason.
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

Status CheckLink(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 || errno != ENOENT) return Status();
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return Status();
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(path, error).string();
  return MakeStatus(StatusCode::kNoInput,
                    "{}: is a symbolic link to {}, which is not there; download or copy it again, "
                    "with what it leads to",
                    Visible(path, 400), Visible(target, 200));
}

namespace {

// Closes `opened`, which may be null.
std::vector<std::string> NamesOf(DIR* opened) {
  std::vector<std::string> names;
  if (opened == nullptr) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> owner(opened, closedir);
  while (const dirent* entry = readdir(opened)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> NamesIn(const std::string& folder) {
  return NamesOf(opendir(folder.c_str()));
}

std::vector<std::string> NamesIn(int folder) {
  // Opened anew, because a copy of the descriptor would share its position in the list.
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const opened = fd >= 0 ? fdopendir(fd) : nullptr;
  if (opened == nullptr && fd >= 0) close(fd);
  return NamesOf(opened);
}

}  // namespace minisgl
