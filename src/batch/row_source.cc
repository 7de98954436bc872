#include "batch/row_source.h"

#include <fmt/core.h>

#include <algorithm>

#include "batch/grammar_texts.h"
#include "batch/input_kind.h"
#include "batch/row_conversation.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

// More than an id takes in JSON.
constexpr size_t kControlBytesMax = size_t{32} << 10;

RowError DuplicateId(const Row& row, int64_t first_line) {
  return {"duplicate_id",
          fmt::format("the id {} was already on line {}; give each row its own",
                      Visible(row.id.Dump()), first_line),
          "id"};
}

// Finds the lines of the rows that had the ids of `duplicates` first by reading the file again. Few
// inputs have duplicates, so line numbers are not stored for all rows.
Status FindFirstLines(LineReader* reader, std::vector<DuplicateRow>* duplicates) {
  std::vector<DuplicateRow*> by_first;
  for (DuplicateRow& duplicate : *duplicates) by_first.push_back(&duplicate);
  std::sort(by_first.begin(), by_first.end(), [](const DuplicateRow* a, const DuplicateRow* b) {
    return a->first_index < b->first_index;
  });
  MINISGL_RETURN_IF_ERROR(reader->Rewind());
  std::string line;
  int64_t next_index = 0;
  for (DuplicateRow* duplicate : by_first) {
    for (; next_index <= duplicate->first_index; ++next_index) {
      if (reader->Next(0, &line) == LineReader::Outcome::kFailed) return reader->status();
    }
    duplicate->first_line = reader->line_number();
  }
  return Status();
}

// True if an earlier version used other seeds for the row: if it has several answers or a seed of
// -1.
bool IsReseeded(const Row& row) { return row.n > 1 || row.any_seed; }

bool IsFilled(const Json& list) { return list.is_array() && !list.as_array().empty(); }

// Notes the session of the row that was read last.
void NoteSession(const Row& row, IdTable* names, FileCheck* check) {
  if (row.session.empty()) return;
  const int64_t next = std::ssize(check->sessions) + 1;
  const int64_t number = names->Note(Json(row.session), next).value_or(next);
  if (number == next) check->sessions.push_back({row.index, row.index});
  check->sessions[static_cast<size_t>(number) - 1].last = row.index;
  check->session_of_row.resize(static_cast<size_t>(row.index) + 1);
  check->session_of_row.back() = static_cast<uint32_t>(number);
}

}  // namespace

std::optional<RunControl> ParseControl(std::string_view line) {
  constexpr std::string_view kAbort = "abort", kReset = "reset_prefix_cache";
  // Rows are not parsed twice.
  if (line.size() > kControlBytesMax) return std::nullopt;
  if (line.find(kAbort) == line.npos && line.find(kReset) == line.npos) return std::nullopt;
  const Result<Json> json = ParseJson(line);
  if (!json.ok() || !json->is_object() || json->as_object().size() != 1) return std::nullopt;
  const auto& [name, value] = json->as_object().front();
  RunControl control;
  if (name == kAbort && (value.is_string() || value.is_number())) control.aborted_id = value;
  control.resets_cache = name == kReset && value == Json(true);
  const bool is_control = !control.aborted_id.is_null() || control.resets_cache;
  return is_control ? std::optional(std::move(control)) : std::nullopt;
}

RowSelection SelectShard(int64_t first, int64_t end, const FileCheck& check) {
  RowSelection selection;
  selection.first = first;
  selection.end = end;
  if (check.sessions.empty()) return selection;
  const auto begins_here = [&](const FileCheck::Ends& session) {
    return session.first >= first && session.first < end;
  };
  for (const FileCheck::Ends& session : check.sessions) {
    if (begins_here(session)) selection.end = std::max(selection.end, session.last + 1);
  }
  selection.elsewhere.resize(static_cast<size_t>(check.rows));
  for (int64_t index = first; index < selection.end; ++index) {
    const uint32_t number = check.SessionOf(index);
    selection.elsewhere[static_cast<size_t>(index)] =
        number == 0 ? index >= end : !begins_here(check.sessions[number - 1]);
  }
  return selection;
}

const DuplicateRow* FileCheck::FindDuplicate(int64_t index) const {
  const auto found = std::lower_bound(
      duplicates.begin(), duplicates.end(), index,
      [](const DuplicateRow& duplicate, int64_t value) { return duplicate.index < value; });
  return found == duplicates.end() || found->index != index ? nullptr : &*found;
}

int64_t RowSelection::Count(int64_t num_rows) const {
  const int64_t last = std::min(end, num_rows);
  int64_t count = 0;
  for (int64_t index = first; index < last; ++index) count += Has(index) ? 1 : 0;
  return count;
}

// Checks the beginning of the input before the first row. kRow: there may be rows.
RowSource::Outcome FileRowSource::CheckBeginning(int timeout_ms) {
  std::string_view begin;
  bool is_all = false;
  const LineReader::Outcome outcome = reader_.Peek(timeout_ms, &begin, &is_all);
  if (outcome == LineReader::Outcome::kNotYet) return Outcome::kNotYet;
  if (outcome == LineReader::Outcome::kFailed) return Outcome::kFailed;
  checked_beginning_ = true;
  if (!reader_.is_table()) kind_ = CheckIsJsonLines(begin, is_all, reader_.name());
  if (kind_.ok() && template_ == nullptr) kind_ = CheckIsNoTable(begin, reader_.name());
  return kind_.ok() ? Outcome::kRow : Outcome::kFailed;
}

RowSource::Outcome FileRowSource::Next(int timeout_ms, ParsedRow* row) {
  if (!checked_beginning_) {
    const Outcome beginning = CheckBeginning(timeout_ms);
    if (beginning != Outcome::kRow) return beginning;
  }
  LineReader::Outcome outcome = LineReader::Outcome::kEnd;
  bool selected = false;
  while (!selected) {
    if (selection_ != nullptr && next_index_ >= selection_->end) return Outcome::kEnd;
    outcome = reader_.Next(timeout_ms, &line_);
    const bool is_row =
        outcome == LineReader::Outcome::kLine || outcome == LineReader::Outcome::kTooLong;
    selected = !is_row || Wants();
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
      row->row.format = FormatFor(purpose_);
      row->error = RowError{
          "invalid_row",
          fmt::format("the line has more than {} bytes; give shorter rows", kRowBytesMax), ""};
      line_.clear();
      return Outcome::kRow;
    case LineReader::Outcome::kLine:
      break;
  }
  if (takes_controls_) {
    if (auto control = ParseControl(line_)) {
      control_ = std::move(*control);
      return Outcome::kControl;
    }
  }
  *row = MakeRow();
  RefuseDuplicate(row);
  if (!row->row.session.empty()) SetSession(row);
  return Outcome::kRow;
}

ParsedRow FileRowSource::MakeRow() {
  if (template_ == nullptr) {
    return ParseRow(line_, next_index_++, reader_.line_number(), lenient_, purpose_);
  }
  if (reader_.is_table() && columns_.empty()) columns_ = ColumnNames(reader_.header());
  return template_->MakeRow(line_, reader_, columns_, next_index_++);
}

bool FileRowSource::Wants() const {
  return selection_ == nullptr || selection_->Has(next_index_) ||
         selection_->earlier.contains(next_index_);
}

void FileRowSource::SetSession(ParsedRow* row) const {
  const int64_t index = row->row.index;
  if (const uint32_t number = check_ == nullptr ? 0 : check_->SessionOf(index)) {
    row->row.ends_session = check_->sessions[number - 1].last == index;
  }
  if (selection_ == nullptr) return;
  const auto earlier = selection_->earlier.find(index);
  if (earlier != selection_->earlier.end()) row->earlier = earlier->second;
}

// An error that the row already has takes precedence.
void FileRowSource::RefuseDuplicate(ParsedRow* row) {
  std::optional<int64_t> first_line;
  if (check_ids_) {
    first_line = ids_.Note(row->row.id, row->row.line);
  } else if (check_ != nullptr) {
    const DuplicateRow* duplicate = check_->FindDuplicate(row->row.index);
    if (duplicate != nullptr) first_line = duplicate->first_line;
  }
  if (first_line && !row->error) row->error = DuplicateId(row->row, *first_line);
}

Status FileRowSource::status() const {
  if (!kind_.ok()) return kind_;
  if (!reader_.changed() || check_ == nullptr) return reader_.status();
  return BadInput(
      "{}: changed while it was read: {} of its {} rows had been read; the others are "
      "not run",
      reader_.name(), next_index_, check_->rows);
}

size_t SingleRowSource::PromptBytes(const Row& row) {
  size_t bytes = row.prompt.size();
  if (!row.messages.is_array()) return bytes;
  for (const Json& message : row.messages.as_array()) {
    const Json* const content = message.Find("content");
    if (content != nullptr && content->is_string()) bytes += content->as_string().size();
  }
  return bytes;
}

Result<FileCheck> CheckRows(LineReader* reader, bool lenient, IdTable* ids, RowPurpose purpose,
                            bool compiles_grammars, const RowTemplate* row_template) {
  FileCheck check;
  GrammarCheck grammars;
  FileRowSource source(reader, lenient, /*check_ids=*/false, purpose);
  source.UseTemplate(row_template);
  IdTable own_ids, session_names;
  if (ids == nullptr) ids = &own_ids;
  ParsedRow parsed;
  ParsedRow first_bad;  // needed for its message
  RowSource::Outcome outcome = RowSource::Outcome::kEnd;
  while ((outcome = source.Next(0, &parsed)) == RowSource::Outcome::kRow) {
    ++check.rows;
    const Row& row = parsed.row;
    check.has_id.push_back(!row.id.is_null());
    NoteSession(row, &session_names, &check);
    if (IsReseeded(row) && check.reseeded_rows++ == 0) check.first_reseeded_line = row.line;
    if (!row.reasoning_effort.empty() && check.effort_line == 0) check.effort_line = row.line;
    if (!row.verbosity.empty() && check.verbosity_line == 0) check.verbosity_line = row.line;
    if (IsFilled(row.tools) && check.tools_line == 0) check.tools_line = row.line;
    check.has_images |= !row.images.empty();
    if (IsFilled(row.documents) && check.documents_line == 0) check.documents_line = row.line;
    const std::optional<int64_t> first_index = ids->Note(row.id, row.index);
    if (first_index) check.duplicates.push_back({row.index, row.line, *first_index, 0});
    if (compiles_grammars && !parsed.error) parsed.error = grammars.CheckOwn(row);
    if (!parsed.error && !first_index) {
      check.raw_prompts += IsRawPrompt(row) ? 1 : 0;
      continue;
    }
    if (parsed.error && parsed.error->message.starts_with("not valid JSON")) ++check.no_json_rows;
    if (check.bad_rows++ > 0) continue;
    first_bad.row.index = row.index;
    first_bad.row.line = row.line;
    first_bad.row.id = row.id;
    first_bad.error = parsed.error;
  }
  if (outcome == RowSource::Outcome::kFailed) return source.status();
  MINISGL_RETURN_IF_ERROR(reader->Rewind());
  if (!check.duplicates.empty()) {
    MINISGL_RETURN_IF_ERROR(FindFirstLines(reader, &check.duplicates));
    MINISGL_RETURN_IF_ERROR(reader->Rewind());
  }
  if (check.bad_rows == 0) return check;
  if (const DuplicateRow* duplicate = check.FindDuplicate(first_bad.row.index);
      duplicate != nullptr && !first_bad.error) {
    first_bad.error = DuplicateId(first_bad.row, duplicate->first_line);
  }
  check.first_bad =
      fmt::format("{}:{}: {}", reader->name(), first_bad.row.line, first_bad.error->message);
  return check;
}

Status CheckSomeRowIsGood(const LineReader& reader, const FileCheck& check) {
  if (check.rows == 0 || check.bad_rows < check.rows) return Status();
  std::string columns;
  for (const std::string& name : reader.header()) {
    columns += (columns.empty() ? "; the columns are " : ", ") + Visible(name, 100);
  }
  return BadInput(
      "{}{}{}", check.first_bad,
      check.rows > 1 ? fmt::format("; none of the {} rows can be asked", check.rows) : "", columns);
}

}  // namespace minisgl::batch
