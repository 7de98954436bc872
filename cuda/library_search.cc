// See library_search.h.
#include "library_search.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "minisgl/base/environment.h"

namespace minisgl::cuda {
namespace {

namespace fs = std::filesystem;

// `folder` as a pattern that matches itself only.
std::string Literal(const std::string& folder) {
  std::string pattern;
  for (const char c : folder) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Adds folders, as patterns, and their description. Patterns that were added before are left out.
class FolderList {
 public:
  void AddToolkit(const std::string& pattern, const std::string& shown) {
    Add({pattern + "/lib64", pattern + "/lib", pattern + "/targets/*/lib"},
        shown + "/{lib64,lib,targets/*/lib}");
  }
  void AddLibrary(const std::string& folder) { Add({Literal(folder) + "/lib"}, folder + "/lib"); }
  // Python's packages of CUDA libraries. Debian's Python has dist-packages.
  void AddPython(const std::string& folder) {
    const std::string inner = Literal(folder) + "/lib/python*/";
    Add({inner + "site-packages/nvidia/*/lib", inner + "dist-packages/nvidia/*/lib"},
        folder + "/lib/python*/{site,dist}-packages/nvidia/*/lib");
  }
  const std::vector<std::string>& patterns() const { return patterns_; }
  const std::string& shown() const { return shown_; }

 private:
  void Add(const std::vector<std::string>& patterns, const std::string& shown) {
    if (std::find(patterns_.begin(), patterns_.end(), patterns[0]) != patterns_.end()) return;
    patterns_.insert(patterns_.end(), patterns.begin(), patterns.end());
    shown_ += (shown_.empty() ? "" : ", ") + shown;
  }

  std::vector<std::string> patterns_;
  std::string shown_;
};

bool IsAbsolute(const std::string& folder) { return folder.starts_with('/'); }

// X of each absolute folder X/bin of a list in the form of PATH.
std::vector<std::string> EnvironmentsOf(const std::string& path) {
  std::vector<std::string> found;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::string folder = path.substr(begin, end - begin);
    begin = end + 1;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (!IsAbsolute(folder) || !folder.ends_with("/bin")) continue;
    folder.resize(folder.size() - 4);
    found.push_back(folder);
  }
  return found;
}

FolderList FoldersOf(const SearchPlaces& places) {
  FolderList folders;
  for (const std::string& toolkit : {places.cuda_home, places.cuda_path}) {
    if (IsAbsolute(toolkit)) folders.AddToolkit(Literal(toolkit), toolkit);
  }
  for (const char* const toolkits : {"/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda*"}) {
    folders.AddToolkit(Literal(places.root) + toolkits, places.root + toolkits);
  }
  if (IsAbsolute(places.conda_prefix)) folders.AddLibrary(places.conda_prefix);
  for (const std::string& environment : {places.virtual_env, places.conda_prefix}) {
    if (IsAbsolute(environment)) folders.AddPython(environment);
  }
  for (const std::string& environment : EnvironmentsOf(places.path)) folders.AddPython(environment);
  return folders;
}

// Newer versions of a toolkit first.
std::vector<std::string> Matches(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t matches = {};
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

}  // namespace

SearchPlaces PlacesOfEnvironment() {
  return {.root = "",
          .cuda_home = EnvironmentVariable("CUDA_HOME"),
          .cuda_path = EnvironmentVariable("CUDA_PATH"),
          .virtual_env = EnvironmentVariable("VIRTUAL_ENV"),
          .conda_prefix = EnvironmentVariable("CONDA_PREFIX"),
          .path = EnvironmentVariable("PATH")};
}

LibraryNames FindLibrary(const SearchPlaces& places, std::span<const std::string> sonames) {
  const FolderList folders = FoldersOf(places);
  LibraryNames found = {.names = {sonames.begin(), sonames.end()}, .folders = folders.shown()};
  std::vector<fs::path> files;
  for (const std::string& soname : sonames) {
    for (const std::string& folder : folders.patterns()) {
      for (std::string& name : Matches(folder + "/" + soname)) {
        std::error_code error;
        const fs::path file = fs::canonical(name, error);
        if (error || std::find(files.begin(), files.end(), file) != files.end()) continue;
        files.push_back(file);
        found.names.push_back(std::move(name));
      }
    }
  }
  return found;
}

std::vector<int> UsableMajors(int driver_version, int build_major) {
  std::vector<int> majors = {build_major};
  for (const int known : {13, 12}) {
    if (known != build_major) majors.push_back(known);
  }
  std::erase_if(majors, [&](int major) { return major > driver_version / 1000; });
  return majors;
}

}  // namespace minisgl::cuda
