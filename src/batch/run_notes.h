// Says once a run what many rows have to say. Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "batch/row.h"

namespace minisgl::batch {

class RunNotes {
 public:
  // Logs those of `notes` that were not logged before.
  void Say(const std::vector<RunNote>& notes);

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace minisgl::batch
