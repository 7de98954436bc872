// What was brought to its disk: the program of the tests has its own fsync(2), which notes the
// names of the files.
#pragma once

#include <string>
#include <vector>

namespace minisgl {

// While one lives (one at a time), every fsync is noted.
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
