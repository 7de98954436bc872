// The files in which a library of the CUDA toolkit may be: toolkits and Python packages are often
// installed where the loader does not look.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace minisgl::cuda {

// The places that decide which folders are searched.
struct SearchPlaces {
  std::string root;  // before /usr/local and /opt; empty except in tests
  // Environment variables of these names, in capitals; empty if not set.
  std::string cuda_home, cuda_path, virtual_env, conda_prefix, path;
};
SearchPlaces PlacesOfEnvironment();

struct LibraryNames {
  std::vector<std::string> names;  // for dlopen, in the order in which they are tried
  std::string folders;             // for messages: the folders that were searched, with wildcards
};

// `sonames`, for the loader's own folders; then each file of one of these names (the first one's
// files first) in the folders
//   lib64, lib and targets/*/lib of CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-* and
//   /opt/cuda*;
//   lib of CONDA_PREFIX;
//   lib/python*/site-packages/nvidia/*/lib, with dist-packages too, of the Python environments
//   VIRTUAL_ENV, CONDA_PREFIX, and X for each X/bin in PATH.
// Files that are one through symbolic links are named once. Relative folders are left out:
// others may be able to write files into the current folder.
LibraryNames FindLibrary(const SearchPlaces& places, std::span<const std::string> sonames);

// The major versions of CUDA's libraries that may be loaded, best first: those known, and the
// build's own. A library needs a driver of its own major version or a later one. driver_version: in
// CUDA's form, 13000 for 13.0.
std::vector<int> UsableMajors(int driver_version, int build_major);

}  // namespace minisgl::cuda
