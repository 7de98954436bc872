// See folder.h.
#include "minisgl/base/folder.h"

#include <dirent.h>
#include <sys/stat.h>

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

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace minisgl
