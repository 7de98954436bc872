// Why rows of a run have no answer: how many failed with each code, and the first of them.
//
// Rows that the end of the run cancelled are counted apart: they did not fail by themselves. Used
// by one thread.
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

  // All of them, cancelled ones too.
  int64_t total() const { return total_; }
  int64_t cancelled() const { return cancelled_; }
  // All but the cancelled ones.
  int64_t failed() const { return total_ - cancelled_; }
  // Of the one added last; "" if none was added.
  const std::string& last_code() const { return last_code_; }

  // "39 invalid_row, 4 unsupported_field, 2 cancelled", the most frequent first; "" where there is
  // none.
  std::string Counts() const;
  // "43 failed: 39 invalid_row, 4 unsupported_field; first: line 5: what is wrong", without those
  // that were cancelled; "" where no other failed.
  std::string Text() const;
  // {"invalid_row": 39, ...}, in the order of the codes.
  Json ToJson() const;

 private:
  std::string CountsText(bool with_cancelled) const;

  int64_t total_ = 0, cancelled_ = 0;
  std::map<std::string, int64_t> counts_;  // by code
  std::string last_code_;
  // The one that stands first in the input.
  int64_t first_line_ = 0;
  std::string first_message_;
};

}  // namespace minisgl::batch
