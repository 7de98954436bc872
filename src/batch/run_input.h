// The lines of a prompt file, of standard input, or of a pipe, one at a time and without waiting
// longer than asked.
//
// Memory is bounded: one line of at most kRowBytesMax and one read buffer. A byte order mark before
// the first line, a carriage return at a line's end, and lines of white space alone are passed
// over. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::batch {

class LineReader {
 public:
  enum class Outcome { kLine, kTooLong, kNotYet, kEnd, kFailed };

  // `path` "-" is standard input. kNoInput where it cannot be opened.
  static Result<LineReader> Open(const std::string& path);
  LineReader(LineReader&& other) noexcept;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  // The next line into *line. kTooLong: a line of more than kRowBytesMax was passed over. kNotYet:
  // none came within `timeout_ms` (a regular file never waits), or a signal did. kFailed: see
  // status().
  Outcome Next(int timeout_ms, std::string* line);

  // The bytes that come next, which Next gives all the same: of a file a block, of a pipe what
  // there is. *is_all: nothing comes after them. As Next where there are none yet.
  Outcome Peek(int timeout_ms, std::string_view* bytes, bool* is_all);

  // Of the line that Next gave last, from 1.
  int64_t line_number() const { return line_number_; }
  const Status& status() const { return status_; }
  // As messages name it.
  const std::string& name() const { return name_; }
  int fd() const { return fd_; }
  // Of a regular file: where reading began.
  int64_t start_offset() const { return start_offset_; }

  // A regular file can be read twice.
  bool regular() const { return regular_; }
  // Back to where reading began. REQUIRES regular(). After a whole reading the file is what that
  // found: bytes added since are not read, and where others are changed or gone, Next gives kFailed
  // before it gives a line of them.
  Status Rewind();
  // Whether that happened.
  bool changed() const { return changed_; }
  // Of the first reading, once that has come to its end.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  LineReader() = default;
  Outcome Fill(int timeout_ms);
  Outcome FillFromFile();
  Outcome FailToRead(int error);
  bool TakeLine(std::string* line, Outcome* outcome);

  int fd_ = -1;
  bool owned_ = false;
  bool regular_ = false;
  int64_t start_offset_ = 0;
  std::string name_;
  std::string buffer_;  // read and not yet given out, from buffer_begin_ on
  size_t buffer_begin_ = 0;
  size_t scanned_ = 0;     // no line break before this
  bool skipping_ = false;  // inside a line that is too long
  bool at_end_ = false;
  int64_t line_number_ = 0;
  Status status_;
  // Of a regular file: a hash of each block of the first reading, which the next is held against.
  std::vector<uint64_t> block_hashes_;
  int64_t num_bytes_ = 0;
  bool reads_again_ = false;
  int64_t bytes_read_ = 0;
  bool changed_ = false;
};

// What is to be said of an input that holds no row.
std::string NoRows(const LineReader& reader);

// The text that --system gives: itself, or that of the file after @.
Result<std::string> SystemText(const std::string& option);

// All of standard input, at most kRowBytesMax bytes; ill-formed UTF-8 is replaced and said as a
// warning. A second without any is said once; `may_be_left`: --no-stdin would leave it out.
Result<std::string> ReadStandardInput(bool may_be_left);

}  // namespace minisgl::batch
