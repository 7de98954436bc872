#include "cli/row_source.h"

#include <fmt/format.h>

#include "minisgl/base/utf8.h"

namespace minisgl {

RowSource::Outcome FileRowSource::Next(int timeout_ms, ParsedRow* row) {
  const LineReader::Outcome outcome = reader_.Next(timeout_ms, &line_);
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
    const int64_t before = ids_.Note(row->row.id, row->row.line);
    if (before != 0 && !row->error) {
      row->error = RowError{"duplicate_id",
                            fmt::format("the id {} was already on line {}; give each row its own",
                                        Visible(row->row.id.Dump()), before),
                            "id"};
    }
  }
  return Outcome::kRow;
}

Result<FileCheck> CheckRows(LineReader* reader, bool lenient) {
  FileCheck check;
  FileRowSource source(reader, lenient, false);
  IdTable ids;
  ParsedRow parsed;
  RowSource::Outcome outcome = RowSource::Outcome::kEnd;
  while ((outcome = source.Next(0, &parsed)) == RowSource::Outcome::kRow) {
    ++check.rows;
    const Row& row = parsed.row;
    if (const int64_t before = ids.Note(row.id, row.line); before != 0) {
      return BadInput("{}:{}: duplicate id ({}, first on line {}); give each row its own",
                      reader->name(), row.line, Visible(row.id.Dump()), before);
    }
    if (!parsed.error) continue;
    if (check.bad_rows++ == 0) {
      check.first_bad = fmt::format("{}:{}: {}", reader->name(), row.line, parsed.error->message);
    }
  }
  if (outcome == RowSource::Outcome::kFailed) return reader->status();
  MINISGL_RETURN_IF_ERROR(reader->Rewind());
  return check;
}

}  // namespace minisgl
