// Reads lines from a prompt file, standard input or a pipe, one at a time, with a timeout; or the
// records of a table (table_text.h), which may have several lines. An input that begins as gzip or
// Zstandard data do is decompressed.
//
// Memory is bounded: one line of at most kRowBytesMax, one read buffer, and what decompression
// needs. Ignored: a byte order mark before the first line, a carriage return at the end of a line,
// and blank lines. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batch/decompressor.h"
#include "batch/table_text.h"
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

  // From now on reads the records of a table. The first is its header, which Next does not return.
  // REQUIRES that nothing was read yet.
  void ReadTable(char separator);
  bool is_table() const { return scanner_.has_value(); }
  char separator() const { return separator_; }
  // The fields of the header, after the first record was returned; "" for a name that is not given.
  const std::vector<std::string>& header() const { return header_; }
  // Reads the header of a regular file. kBadInput if there is none.
  Status ReadHeader();

  // Number, from 1, of the line that Next returned last, or of the first line of its record.
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
  // Length of the first reading in the file, after its end.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  LineReader() = default;
  Outcome Fill(int timeout_ms);
  Outcome FillFromFile(std::string* to);
  Outcome FillFromPipe(int timeout_ms, std::string* to);
  // Decompresses some of what was read.
  Outcome Expand();
  // Finds out whether the input is compressed, as soon as its first bytes tell.
  Status CheckCompression();
  Outcome FailToRead(int error);
  Outcome Fail(const Status& status);
  bool TakeLine(std::string* line, Outcome* outcome);
  // The end of the line or record that begins at buffer_begin_.
  std::optional<RecordScanner::End> FindEnd();
  bool IsBlank(std::string_view line) const;
  Status TakeHeader(const std::string& record);

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
  int64_t num_lines_ = 0;    // ended so far, if it is no table
  int64_t lines_taken_ = 0;  // that ended before the line that is next
  bool is_first_ = true;     // no line was taken yet
  Status status_;
  // State of a table:
  char separator_ = ',';
  std::optional<RecordScanner> scanner_;
  bool has_header_ = false;
  std::vector<std::string> header_;
  // State of a compressed input: the bytes read and not yet decompressed begin at raw_begin_.
  std::optional<Compression> compression_;  // unset: not known yet
  std::unique_ptr<Decompressor> decompressor_;
  std::string raw_;
  size_t raw_begin_ = 0;
  bool raw_at_end_ = false;
  bool may_expand_ = false;  // the decompressor may have more without more input
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

// The text of --prompt: of the option, or of the file that it names as "@FILE", without the line
// break at its end unless `is_raw`. "@@" begins a text with "@".
Result<std::string> PromptOptionText(const std::string& option, bool is_raw);

// Reads all of standard input by term::ReadAll. Ill-formed UTF-8 is replaced and logged as a
// warning. `may_be_left`: the message about waiting mentions --no-stdin. `check_first_line`: as
// there.
Result<std::string> ReadStandardInput(
    bool may_be_left, const std::function<Status(std::string_view)>& check_first_line = {});

}  // namespace minisgl::batch
