// Records synced files: test programs define fsync(2), which notes the names of the files.
#pragma once

#include <string>
#include <vector>

namespace minisgl {

// While an instance exists (at most one), every fsync is recorded.
class SyncedFiles {
 public:
  SyncedFiles();
  ~SyncedFiles();
  SyncedFiles(const SyncedFiles&) = delete;
  SyncedFiles& operator=(const SyncedFiles&) = delete;

  // In the order of the calls, by any thread.
  std::vector<std::string> Paths() const;
};

}  // namespace minisgl
