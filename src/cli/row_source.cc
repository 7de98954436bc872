#include "cli/row_source.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/input_kind.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// The line of row `index`: read again, for the message of a run that ends.
int64_t LineOfRow(LineReader* reader, int64_t index) {
  if (!reader->Rewind().ok()) return 0;
  std::string line;
  for (int64_t at = 0; at <= index; ++at) reader->Next(0, &line);
  return reader->line_number();
}

}  // namespace

int64_t RowSelection::Count(int64_t num_rows) const {
  const int64_t last = std::min(end, num_rows);
  int64_t count = 0;
  for (int64_t index = first; index < last; ++index) count += Has(index) ? 1 : 0;
  return count;
}

// Before the first row: kRow where there may be rows.
RowSource::Outcome FileRowSource::LookAtBeginning(int timeout_ms) {
  std::string_view begin;
  bool is_all = false;
  const LineReader::Outcome outcome = reader_.Peek(timeout_ms, &begin, &is_all);
  if (outcome == LineReader::Outcome::kNotYet) return Outcome::kNotYet;
  if (outcome == LineReader::Outcome::kFailed) return Outcome::kFailed;
  looked_ = true;
  kind_ = CheckIsJsonLines(begin, is_all, reader_.name());
  return kind_.ok() ? Outcome::kRow : Outcome::kFailed;
}

RowSource::Outcome FileRowSource::Next(int timeout_ms, ParsedRow* row) {
  if (!looked_) {
    const Outcome beginning = LookAtBeginning(timeout_ms);
    if (beginning != Outcome::kRow) return beginning;
  }
  LineReader::Outcome outcome = LineReader::Outcome::kEnd;
  bool selected = false;
  while (!selected) {
    if (selection_ != nullptr && next_index_ >= selection_->end) return Outcome::kEnd;
    outcome = reader_.Next(timeout_ms, &line_);
    const bool is_row =
        outcome == LineReader::Outcome::kLine || outcome == LineReader::Outcome::kTooLong;
    selected = !is_row || selection_ == nullptr || selection_->Has(next_index_);
    if (!selected) ++next_index_;
  }
  switch (outcome) {
    case LineReader::Outcome::kNotYet:
      return Outcome::kNotYet;
    case LineReader::Outcome::kEnd:
      return Outcome::kEnd;
    case LineReader::Outcome::kFailed:
      return Outcome::kFailed;
    case LineReader::Outcome::kTooLong:
      *row = ParsedRow();
      row->row.index = next_index_++;
      row->row.line = reader_.line_number();
      row->error = RowError{
          "invalid_row",
          fmt::format("the line has more than {} bytes; give shorter rows", kRowBytesMax), ""};
      line_.clear();
      return Outcome::kRow;
    case LineReader::Outcome::kLine:
      break;
  }
  *row = ParseRow(line_, next_index_++, reader_.line_number(), lenient_);
  if (check_ids_) {
    const std::optional<int64_t> before = ids_.Note(row->row.id, row->row.line);
    if (before && !row->error) {
      row->error = RowError{"duplicate_id",
                            fmt::format("the id {} was already on line {}; give each row its own",
                                        Visible(row->row.id.Dump()), *before),
                            "id"};
    }
  }
  return Outcome::kRow;
}

Result<FileCheck> CheckRows(LineReader* reader, bool lenient, IdTable* ids) {
  FileCheck check;
  FileRowSource source(reader, lenient, false);
  IdTable own_ids;
  if (ids == nullptr) ids = &own_ids;
  ParsedRow parsed;
  RowSource::Outcome outcome = RowSource::Outcome::kEnd;
  while ((outcome = source.Next(0, &parsed)) == RowSource::Outcome::kRow) {
    ++check.rows;
    const Row& row = parsed.row;
    if (const std::optional<int64_t> before = ids->Note(row.id, row.index)) {
      return BadInput("{}:{}: duplicate id ({}, first on line {}); give each row its own",
                      reader->name(), row.line, Visible(row.id.Dump()), LineOfRow(reader, *before));
    }
    if (!parsed.error) continue;
    if (check.bad_rows++ == 0) {
      check.first_bad = fmt::format("{}:{}: {}", reader->name(), row.line, parsed.error->message);
    }
  }
  if (outcome == RowSource::Outcome::kFailed) return source.status();
  MINISGL_RETURN_IF_ERROR(reader->Rewind());
  return check;
}

}  // namespace minisgl
