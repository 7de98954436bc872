// Statistics of the failed rows of a run: a count for each error code, and the first failure.
//
// Rows that the end of the run left without an answer are counted separately as cancelled, because
// they did not fail by themselves. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "batch/row.h"
#include "minisgl/base/json.h"

namespace minisgl::batch {

class Failures {
 public:
  void Add(int64_t line, const RowError& error);
  // Adds `count` cancelled rows.
  void AddCancelled(int64_t count);

  // All failed rows, including cancelled ones.
  int64_t total() const { return total_; }
  int64_t cancelled() const { return cancelled_; }
  // Failed rows without the cancelled ones.
  int64_t failed() const { return total_ - cancelled_; }
  // Code of the failure added last; "" if none was added.
  const std::string& last_code() const { return last_code_; }

  // "39 invalid_row, 4 unsupported_field, 2 cancelled", most frequent first; "" if there are none.
  std::string Counts() const;
  // "43 failed: 39 invalid_row, 4 unsupported_field; first: line 5: what is wrong", without
  // cancelled rows; "" if no other row failed.
  std::string Text() const;
  // {"invalid_row": 39, ...}, sorted by code.
  Json ToJson() const;

 private:
  std::string CountsText(bool with_cancelled) const;

  int64_t total_ = 0, cancelled_ = 0;
  std::map<std::string, int64_t> counts_;  // by code
  std::string last_code_;
  // The failure on the first line of the input.
  int64_t first_line_ = 0;
  std::string first_message_;
};

}  // namespace minisgl::batch
