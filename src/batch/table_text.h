// The text of tables: CSV as RFC 4180 and pandas have it, and TSV, which is CSV with tabs.
//
// - A field that begins with a quotation mark ends with the next one that is not doubled;
//   separators and line breaks in it are text. Characters after it belong to the field, too. A
//   quotation mark elsewhere is text.
// - A record ends with a line feed, a carriage return, or both.
// Bytes are not interpreted otherwise. Thread-safe (no state), except RecordScanner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::batch {

// Finds the ends of records in a text that comes in pieces.
class RecordScanner {
 public:
  explicit RecordScanner(char separator) : separator_(separator) {}

  struct End {
    size_t end = 0;   // one past the record, without its line break
    size_t next = 0;  // where the next record begins
  };
  // Looks for the end of a record in text[*scanned, ...), and moves *scanned to what it has not
  // looked at. `is_all`: nothing follows. nullopt: the end is not in `text`.
  std::optional<End> Find(std::string_view text, size_t* scanned, bool is_all);
  // Begins another record.
  void Reset() { state_ = State::kFieldBegin; }
  // Line breaks passed so far, those in fields too.
  int64_t num_lines() const { return num_lines_; }

 private:
  enum class State : uint8_t { kFieldBegin, kInField, kInQuotes, kQuoteInQuotes };

  const char separator_;
  State state_ = State::kFieldBegin;
  int64_t num_lines_ = 0;
};

// The fields of one record, which has no line break at its end. kBadInput if a quotation mark is
// not closed.
Result<std::vector<std::string>> ParseRecord(std::string_view record, char separator);

// Appends a field, in quotation marks if it needs them. A record's only field needs them if it is
// empty, because an empty line is no record.
void AppendField(std::string_view field, char separator, bool is_only, std::string* record);

// The columns of a table, by its first record. A name that a column before it has gets a number
// behind it, as in pandas: a, a.1, a.2.
std::vector<std::string> ColumnNames(const std::vector<std::string>& header);

}  // namespace minisgl::batch
