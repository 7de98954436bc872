#include "batch/table_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "batch/row_template.h"
#include "batch/skim_json.h"
#include "batch/table_text.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumnsMax = 10000;
constexpr size_t kShownTextMax = 1000;

// Null is an empty cell; what is no string is written as JSON.
std::string CellOf(const Json* value) {
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : value->Dump();
}

std::string ErrorCell(const Json& error) {
  return fmt::format("{}: {}", CellOf(error.Find("code")), CellOf(error.Find("message")));
}

// The error of a row, and the text that no column holds.
std::string ErrorAndText(const Json& row) {
  const Json *const error = row.Find("error"), *const text = row.Find("text");
  std::string cell = error == nullptr ? std::string() : ErrorCell(*error);
  if (text != nullptr) cell += ": " + Visible(CellOf(text), kShownTextMax);
  return cell;
}

// The input, record by record, as cells.
class InputTable {
 public:
  explicit InputTable(LineReader* reader) : reader_(*reader) {}

  // Reads the names of the columns. Of JSON objects those are all members of `asked` records, in
  // the order in which they are first seen.
  Status ReadColumnNames(const RowSelection& asked) {
    MINISGL_RETURN_IF_ERROR(reader_.Rewind());
    if (reader_.is_table()) {
      names_ = reader_.header();
      return Status();
    }
    std::set<std::string> seen;
    std::string line;
    for (int64_t index = 0; index < asked.end && Next(&line); ++index) {
      if (!asked.Owns(index)) continue;
      const Result<Json> columns = ReadColumns(line, reader_, {});
      if (!columns.ok()) continue;
      for (const auto& [name, value] : columns->as_object()) {
        if (!seen.insert(name).second) continue;
        names_.push_back(name);
        if (names_.size() <= kColumnsMax) continue;
        return BadInput(
            "{}:{}: rows have more than {} members with names of their own; write them "
            "as JSON Lines",
            reader_.name(), reader_.line_number(), kColumnsMax);
      }
    }
    MINISGL_RETURN_IF_ERROR(status_);
    return reader_.Rewind();
  }
  // False at the end of the input, or if it cannot be read: see status().
  bool Next(std::string* record) {
    const LineReader::Outcome outcome = reader_.Next(0, record);
    if (outcome == LineReader::Outcome::kTooLong) record->clear();
    if (outcome == LineReader::Outcome::kFailed) status_ = reader_.status();
    return outcome == LineReader::Outcome::kLine || outcome == LineReader::Outcome::kTooLong;
  }
  // The cells of a record: those that it has, also if it is no good record, as far as there are
  // columns for them. *is_whole (may be null): they hold all of the record.
  std::vector<std::string> Cells(const std::string& record, bool* is_whole = nullptr) const {
    std::vector<std::string> cells;
    bool is_read = false;
    if (reader_.is_table()) {
      Result<std::vector<std::string>> fields = ParseRecord(record, reader_.separator());
      is_read = fields.ok() && fields->size() <= names_.size();
      if (fields.ok()) cells = std::move(fields).value();
    } else if (const Result<Json> columns = ReadColumns(record, reader_, {}); columns.ok()) {
      is_read = true;
      for (const std::string& name : names_) cells.push_back(CellOf(columns->Find(name)));
    }
    cells.resize(names_.size());
    if (is_whole != nullptr) *is_whole = is_read;
    return cells;
  }
  // The cells of a record that failed, then its error, the line where it begins, and the record as
  // it is if the cells do not hold all of it.
  std::vector<std::string> FailedCells(const std::string& record, const Json& row) const {
    bool is_whole = false;
    std::vector<std::string> cells = Cells(record, &is_whole);
    cells.push_back(ErrorAndText(row));
    cells.push_back(fmt::format("{}", reader_.line_number()));
    cells.push_back(is_whole ? std::string() : record);
    return cells;
  }
  const std::vector<std::string>& names() const { return names_; }
  const Status& status() const { return status_; }

 private:
  LineReader& reader_;
  std::vector<std::string> names_;
  Status status_;
};

// The name of a column of answers beside those of the input.
std::string FreeName(std::string name, const std::vector<std::string>& taken) {
  while (std::find(taken.begin(), taken.end(), name) != taken.end()) name = "answer_" + name;
  return name;
}

// The cells of an answer: `columns`, and its error, which an answer may have beside its text.
std::vector<std::string> AnswerCells(const Json& answer, const std::vector<std::string>& columns,
                                     bool has_properties) {
  std::vector<std::string> cells(columns.size() + 1);
  const Json* const error = answer.Find("error");
  if (!has_properties) {
    for (size_t i = 0; i < columns.size(); ++i) cells[i] = CellOf(answer.Find(columns[i]));
    if (error != nullptr) cells.back() = ErrorCell(*error);
    return cells;
  }
  if (error != nullptr) {
    cells.back() = ErrorAndText(answer);
    return cells;
  }
  const std::string whole = CellOf(answer.Find("text"));
  const Result<Json> object = ParseJson(whole);
  if (!object.ok() || !object->is_object()) {
    cells.back() = fmt::format("the answer is no JSON object (finish_reason {}): {}",
                               CellOf(answer.Find("finish_reason")), Visible(whole, kShownTextMax));
    return cells;
  }
  for (size_t i = 0; i < columns.size(); ++i) cells[i] = CellOf(object->Find(columns[i]));
  return cells;
}

std::string RecordOf(const std::vector<std::string>& cells, char separator) {
  std::string record;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) record += separator;
    AppendField(cells[i], separator, cells.size() == 1, &record);
  }
  return record + "\n";
}

std::optional<std::vector<std::string>> Properties(const RunOptions& options) {
  const auto& grammar = options.sampling.grammar.text;
  if (grammar == nullptr || grammar->kind != GrammarKind::kJsonSchema) return std::nullopt;
  const Result<Json> schema = ParseJson(grammar->text);
  const Json* properties = schema.ok() ? schema->Find("properties") : nullptr;
  if (properties == nullptr || !properties->is_object()) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [name, value] : properties->as_object()) names.push_back(name);
  return names.empty() ? std::nullopt : std::optional(std::move(names));
}

// The rows of a file, one after the other.
class RowFile {
 public:
  // Opens no file if `path` is "".
  static Result<std::unique_ptr<RowFile>> Open(const std::string& path) {
    std::unique_ptr<RowFile> file(new RowFile());
    if (path.empty()) return file;
    MINISGL_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
    file->reader_ = std::make_unique<LineReader>(std::move(reader));
    file->Advance();
    return file;
  }
  // Returns the next row if it is that of `index`, and goes on to the one after it.
  std::optional<Json> Take(int64_t index) {
    const Json* place = row_ ? row_->Find("index") : nullptr;
    if (place == nullptr || *place != Json(index)) return std::nullopt;
    std::optional<Json> row = std::move(row_);
    Advance();
    return row;
  }
  bool IsAtEnd() const { return !has_line_; }
  // "FILE:LINE" of the row that is next. REQUIRES that a file is open.
  std::string Place() const { return fmt::format("{}:{}", reader_->name(), line_number_); }

 private:
  RowFile() = default;
  void Advance() {
    row_.reset();
    has_line_ = reader_->Next(0, &line_) == LineReader::Outcome::kLine;
    line_number_ = reader_->line_number() + (has_line_ ? 0 : 1);
    if (!has_line_) return;
    Result<Json> row = SkimJson(line_);
    if (row.ok()) row_ = std::move(row).value();
  }

  std::unique_ptr<LineReader> reader_;
  std::string line_;
  bool has_line_ = false;
  int64_t line_number_ = 0;
  std::optional<Json> row_;  // the next one; unset at the end, or if the line is no row
};

// A table that is written record by record.
class TableFile {
 public:
  // `columns` of its own follow those of the input. Writes nothing if `path` is "".
  static Result<std::unique_ptr<TableFile>> Begin(const std::string& path,
                                                  const std::vector<std::string>& input,
                                                  const std::vector<std::string>& columns) {
    std::unique_ptr<TableFile> table(new TableFile());
    if (path.empty()) return table;
    FileReplacement::Options how;
    how.sole_writer = true;
    MINISGL_ASSIGN_OR_RETURN(table->file_, FileReplacement::Begin(path, how));
    table->separator_ = *SeparatorOf(InputFormat::kAuto, path);
    std::vector<std::string> header = input;
    for (const std::string& name : columns) header.push_back(FreeName(name, header));
    MINISGL_RETURN_IF_ERROR(table->file_->Write(RecordOf(header, table->separator_)));
    return table;
  }
  Status Add(std::vector<std::string> cells, std::vector<std::string> more) {
    if (file_ == nullptr) return Status();
    for (std::string& cell : more) cells.push_back(std::move(cell));
    return file_->Write(RecordOf(cells, separator_));
  }
  Status Commit() { return file_ == nullptr ? Status() : file_->Commit(); }

 private:
  TableFile() = default;

  std::unique_ptr<FileReplacement> file_;
  char separator_ = ',';
};

// The same for --output and --errors: if *output is a table, moves its name to *table.
Status TakeTable(const RunOptions& options, const char* option, std::string* output,
                 std::string* table) {
  if (!SeparatorOf(InputFormat::kAuto, *output)) return Status();
  const std::string name = Visible(*output, 400);
  const std::string ending = fs::path(*output).extension().string();
  if (ending == ".gz" || ending == ".zst") {
    return UsageError("{} {}: a table is not written compressed; leave out {}", option, name,
                      ending);
  }
  if (options.unordered) {
    return UsageError(
        "{} {} and --unordered exclude each other; a table is in the order of its "
        "input",
        option, name);
  }
  return TakeFinishedFile(options, option, output, table);
}

}  // namespace

std::vector<std::string> AnswerColumns(const RunOptions& options) {
  if (options.purpose == RowPurpose::kScore) return {"logprob", "num_tokens"};
  if (options.purpose == RowPurpose::kEmbed) return {"embedding", "num_tokens"};
  if (options.purpose == RowPurpose::kClassify) return {"label", "scores", "num_tokens"};
  if (options.purpose == RowPurpose::kRerank) return {"score", "num_tokens"};
  return Properties(options).value_or(std::vector<std::string>{"text"});
}

Status TakeFinishedFile(const RunOptions& options, const char* option, std::string* output,
                        std::string* file) {
  const std::string name = Visible(*output, 400);
  *file = std::exchange(*output, *output + ".jsonl");
  const struct {
    const std::string& path;
    const char* option;
  } others[] = {{options.file.value_or(""), "--file"},
                {options.output, "-o"},
                {options.table, "-o"},
                {options.array, "-o"},
                {options.errors, "--errors"},
                {options.errors_table, "--errors"},
                {options.reports.summary, "--summary"},
                {options.reports.trace, "--trace"},
                {options.reports.events, "--events"}};
  for (const auto& other : others) {
    if (&other.path == file || other.path.empty() || !IsSamePlace(other.path, *file)) continue;
    return MakeStatus(StatusCode::kCannotCreate,
                      "{} {}: names the same file as {}; write to another", option, name,
                      other.option);
  }
  return CheckReplaces(options, *file);
}

Status CheckReplaces(const RunOptions& options, const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || bytes == 0 || options.force || options.resume) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{}: is not empty ({} bytes); --force replaces it, --resume continues its run",
                    Visible(path, 400), bytes);
}

Status TakeTableOutput(RunOptions* options) {
  if (!options->rows.prompt) return Status();
  MINISGL_RETURN_IF_ERROR(TakeTable(*options, "-o", &options->output, &options->table));
  MINISGL_RETURN_IF_ERROR(
      TakeTable(*options, "--errors", &options->errors, &options->errors_table));
  if (!options->errors_table.empty() && options->output.empty()) {
    return UsageError(
        "--errors {}: a table is made when all rows are answered, which --resume may have to "
        "complete; give -o FILE",
        Visible(options->errors_table, 400));
  }
  return Status();
}

Result<int64_t> WriteTables(const RunOptions& options, LineReader* reader,
                            const RowSelection& asked) {
  int64_t num_no_objects = 0;
  const bool has_properties = Properties(options).has_value();
  const std::vector<std::string> columns = AnswerColumns(options);
  InputTable input(reader);
  MINISGL_RETURN_IF_ERROR(input.ReadColumnNames(asked));
  MINISGL_ASSIGN_OR_RETURN(const auto answers,
                           RowFile::Open(options.table.empty() ? "" : options.output));
  MINISGL_ASSIGN_OR_RETURN(const auto errors, RowFile::Open(options.errors));
  std::vector<std::string> answer_columns = columns;
  answer_columns.emplace_back("error");
  MINISGL_ASSIGN_OR_RETURN(const auto table,
                           TableFile::Begin(options.table, input.names(), answer_columns));
  MINISGL_ASSIGN_OR_RETURN(
      const auto errors_table,
      TableFile::Begin(options.errors_table, input.names(), {"error", "line", "record"}));
  std::string record;
  for (int64_t index = 0; index < asked.end && input.Next(&record); ++index) {
    if (!asked.Owns(index)) continue;
    if (const std::optional<Json> row = answers->Take(index)) {
      std::vector<std::string> cells = AnswerCells(*row, columns, has_properties);
      num_no_objects += row->Find("error") == nullptr && !cells.back().empty() ? 1 : 0;
      MINISGL_RETURN_IF_ERROR(table->Add(input.Cells(record), std::move(cells)));
    } else if (const std::optional<Json> failed = errors->Take(index)) {
      MINISGL_RETURN_IF_ERROR(errors_table->Add(input.FailedCells(record, *failed), {}));
    } else if (!options.table.empty()) {
      return BadInput("{}: is not the answer to row {} of {}", answers->Place(), index,
                      reader->name());
    }
  }
  if (!errors->IsAtEnd()) {
    return BadInput("{}: is not the error row of a row of {}", errors->Place(), reader->name());
  }
  MINISGL_RETURN_IF_ERROR(input.status());
  MINISGL_RETURN_IF_ERROR(table->Commit());
  MINISGL_RETURN_IF_ERROR(errors_table->Commit());
  return num_no_objects;
}

}  // namespace minisgl::batch
