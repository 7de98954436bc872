// See folder.h.
#include "minisgl/base/folder.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

namespace minisgl {

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
