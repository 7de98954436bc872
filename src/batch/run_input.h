// Reads lines from a prompt file, standard input or a pipe, one at a time, with a timeout.
//
// Memory is bounded: one line of at most kRowBytesMax and one read buffer. Ignored: a byte order
// mark before the first line, a carriage return at the end of a line, and blank lines. Used by one
// thread.
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

  // `path` "-" is standard input. kNoInput if it cannot be opened.
  static Result<LineReader> Open(const std::string& path);
  LineReader(LineReader&& other) noexcept;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  // Reads the next line into *line.
  // - kTooLong: skipped a line of more than kRowBytesMax.
  // - kNotYet: no line arrived within `timeout_ms` (a regular file never waits), or a signal did.
  // - kFailed: see status().
  Outcome Next(int timeout_ms, std::string* line);

  // Returns the next bytes without consuming them: a block of a file, or what a pipe has. *is_all:
  // nothing follows them. Outcomes as for Next.
  Outcome Peek(int timeout_ms, std::string_view* bytes, bool* is_all);

  // Number, from 1, of the line that Next returned last.
  int64_t line_number() const { return line_number_; }
  const Status& status() const { return status_; }
  // Name for messages.
  const std::string& name() const { return name_; }
  int fd() const { return fd_; }
  // Offset at which reading began, for a regular file.
  int64_t start_offset() const { return start_offset_; }

  // True for a regular file, which can be read twice.
  bool regular() const { return regular_; }
  // Returns to where reading began. REQUIRES regular(). After a complete first reading, the second
  // one must find the same file: bytes appended since are not read, and if others changed or are
  // gone, Next returns kFailed before any line that contains them.
  Status Rewind();
  // True if the file changed between two readings.
  bool changed() const { return changed_; }
  // Length of the first reading, after its end.
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
  std::string buffer_;  // unread bytes start at buffer_begin_
  size_t buffer_begin_ = 0;
  size_t scanned_ = 0;     // no line break before this offset
  bool skipping_ = false;  // inside a line that is too long
  bool at_end_ = false;
  int64_t line_number_ = 0;
  Status status_;
  // For a regular file: hash of each block of the first reading, compared by the second.
  std::vector<uint64_t> block_hashes_;
  int64_t num_bytes_ = 0;
  bool reads_again_ = false;
  int64_t bytes_read_ = 0;
  bool changed_ = false;
};

// Error message for an input without rows.
std::string NoRows(const LineReader& reader);

// Returns the text of --system: the option itself, or the contents of the file after @, if wanted
// without the line breaks at its end.
Result<std::string> SystemText(const std::string& option, bool strip_line_breaks = false);

// Reads all of standard input by term::ReadAll. Ill-formed UTF-8 is replaced and logged as a
// warning. `may_be_left`: the message about waiting mentions --no-stdin.
Result<std::string> ReadStandardInput(bool may_be_left);

}  // namespace minisgl::batch
