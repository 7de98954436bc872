#include "batch/table_text.h"

#include <fmt/core.h>

#include <set>
#include <utility>

namespace minisgl::batch {

std::optional<RecordScanner::End> RecordScanner::Find(std::string_view text, size_t* scanned,
                                                      bool is_all) {
  size_t at = *scanned;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    const bool is_break = c == '\n' || c == '\r';
    if (is_break) {
      // A carriage return may be the first half of a line break.
      if (c == '\r' && at + 1 == text.size() && !is_all) break;
      const bool is_pair = c == '\r' && at + 1 < text.size() && text[at + 1] == '\n';
      ++num_lines_;
      if (state_ != State::kInQuotes) {
        Reset();
        *scanned = at + (is_pair ? 2 : 1);
        return End{at, *scanned};
      }
      at += is_pair ? 1 : 0;
      continue;
    }
    switch (state_) {
      case State::kFieldBegin:
        if (c == '"') {
          state_ = State::kInQuotes;
        } else if (c != separator_) {
          state_ = State::kInField;
        }
        break;
      case State::kInField:
        if (c == separator_) state_ = State::kFieldBegin;
        break;
      case State::kInQuotes:
        if (c == '"') state_ = State::kQuoteInQuotes;
        break;
      case State::kQuoteInQuotes:
        state_ = c == '"'          ? State::kInQuotes
                 : c == separator_ ? State::kFieldBegin
                                   : State::kInField;
        break;
    }
  }
  *scanned = at;
  return std::nullopt;
}

Result<std::vector<std::string>> ParseRecord(std::string_view record, char separator) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    std::string field;
    if (at < record.size() && record[at] == '"') {
      for (++at;; at += 2) {
        const size_t quote = record.find('"', at);
        if (quote == std::string_view::npos) {
          return BadInput("the quotation mark of field {} is not closed", fields.size() + 1);
        }
        field += record.substr(at, quote - at);
        at = quote;
        if (at + 1 >= record.size() || record[at + 1] != '"') break;
        field += '"';
      }
      ++at;
    }
    const size_t end = record.find(separator, at);
    field += record.substr(at, end - at);
    fields.push_back(std::move(field));
    if (end == std::string_view::npos) return fields;
    at = end + 1;
  }
}

void AppendField(std::string_view field, char separator, bool is_only, std::string* record) {
  const char special[] = {'"', '\r', '\n', separator};
  const bool is_plain =
      field.find_first_of(std::string_view(special, sizeof(special))) == std::string_view::npos;
  // A line of blanks is no record either.
  const bool is_blank = is_only && field.find_first_not_of(" \t") == std::string_view::npos;
  if (is_plain && !is_blank) {
    *record += field;
    return;
  }
  *record += '"';
  for (const char c : field) {
    if (c == '"') *record += '"';
    *record += c;
  }
  *record += '"';
}

std::vector<std::string> ColumnNames(const std::vector<std::string>& header) {
  const std::set<std::string> given(header.begin(), header.end());
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const std::string& column : header) {
    std::string name = column;
    for (int number = 1; taken.contains(name); ++number) {
      std::string numbered = fmt::format("{}.{}", column, number);
      if (!given.contains(numbered)) name = std::move(numbered);
    }
    taken.insert(name);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace minisgl::batch
