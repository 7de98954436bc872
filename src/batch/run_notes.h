// Logs each note of rows once a run. Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "batch/row.h"

namespace minisgl::batch {

class RunNotes {
 public:
  // Logs each of `notes` that was not logged before.
  void Say(const std::vector<RunNote>& notes);

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace minisgl::batch
