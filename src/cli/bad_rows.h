// Prints the bad rows of a file that is checked: the first ones each, and the others by message.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "batch/row.h"

namespace minisgl::cli {

class BadRows {
 public:
  // `name`: of the file. `all`: print each row.
  BadRows(std::string name, bool all) : name_(std::move(name)), all_(all) {}

  void Add(int64_t line, const batch::RowError& error);
  // Prints how many rows were not printed, by their messages.
  void End() const;
  int64_t count() const { return count_; }

 private:
  const std::string name_;
  const bool all_;
  int64_t count_ = 0;
  int64_t uncounted_ = 0;  // of messages that are not in not_printed_
  // Rows by code and message, a bounded number of these.
  std::map<std::string, int64_t> not_printed_;
};

}  // namespace minisgl::cli
