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
  // columns for them.
  std::vector<std::string> Cells(const std::string& record) const {
    std::vector<std::string> cells;
    if (reader_.is_table()) {
      Result<std::vector<std::string>> fields = ParseRecord(record, reader_.separator());
      if (fields.ok()) cells = std::move(fields).value();
    } else if (const Result<Json> columns = ReadColumns(record, reader_, {}); columns.ok()) {
      for (const std::string& name : names_) cells.push_back(CellOf(columns->Find(name)));
    }
    cells.resize(names_.size());
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

// The cells of an answer: `columns`, and its error.
std::vector<std::string> AnswerCells(const Json& answer, const std::vector<std::string>& columns,
                                     bool has_properties) {
  std::vector<std::string> cells(columns.size() + 1);
  if (const Json* error = answer.Find("error")) {
    cells.back() =
        fmt::format("{}: {}", CellOf(error->Find("code")), CellOf(error->Find("message")));
    return cells;
  }
  const Json* text = answer.Find("text");
  if (!has_properties) {
    cells.front() = CellOf(text);
    return cells;
  }
  const std::string whole = CellOf(text);
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

}  // namespace

std::vector<std::string> AnswerColumns(const RunOptions& options) {
  return Properties(options).value_or(std::vector<std::string>{"text"});
}

Status TakeTableOutput(RunOptions* options) {
  const bool is_table = SeparatorOf(InputFormat::kAuto, options->output).has_value();
  if (!options->rows.prompt || !is_table) return Status();
  const std::string name = Visible(options->output, 400);
  const std::string ending = fs::path(options->output).extension().string();
  if (ending == ".gz" || ending == ".zst") {
    return UsageError("-o {}: a table is not written compressed; leave out {}", name, ending);
  }
  if (options->unordered) {
    return UsageError(
        "-o {} and --unordered exclude each other; a table is in the order of its "
        "input",
        name);
  }
  options->table = std::exchange(options->output, options->output + ".jsonl");
  options->ordered = true;
  const auto same = [&](const std::string& path, const char* option) {
    if (path.empty() || !IsSamePlace(path, options->table)) return Status();
    return MakeStatus(StatusCode::kCannotCreate,
                      "-o {}: names the same file as {}; write to another", name, option);
  };
  MINISGL_RETURN_IF_ERROR(same(*options->file, "--file"));
  MINISGL_RETURN_IF_ERROR(same(options->reports.summary, "--summary"));
  MINISGL_RETURN_IF_ERROR(same(options->reports.trace, "--trace"));
  MINISGL_RETURN_IF_ERROR(same(options->reports.events, "--events"));
  std::error_code error;
  const auto bytes = fs::file_size(options->table, error);
  if (error || bytes == 0 || options->force || options->resume) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{}: is not empty ({} bytes); --force replaces it, --resume continues its run",
                    name, bytes);
}

Status WriteTable(const RunOptions& options, LineReader* reader, const RowSelection& asked) {
  const char separator = *SeparatorOf(InputFormat::kAuto, options.table);
  const bool has_properties = Properties(options).has_value();
  const std::vector<std::string> columns = AnswerColumns(options);
  InputTable input(reader);
  MINISGL_RETURN_IF_ERROR(input.ReadColumnNames(asked));
  MINISGL_ASSIGN_OR_RETURN(LineReader answers, LineReader::Open(options.output));
  FileReplacement::Options how;
  how.sole_writer = true;
  MINISGL_ASSIGN_OR_RETURN(const auto file, FileReplacement::Begin(options.table, how));
  std::vector<std::string> header = input.names();
  for (const std::string& name : columns) header.push_back(FreeName(name, header));
  header.push_back(FreeName("error", header));
  MINISGL_RETURN_IF_ERROR(file->Write(RecordOf(header, separator)));
  std::string record, line;
  for (int64_t index = 0; index < asked.end && input.Next(&record); ++index) {
    if (!asked.Owns(index)) continue;
    std::vector<std::string> cells = input.Cells(record);
    const bool has_line = answers.Next(0, &line) == LineReader::Outcome::kLine;
    const Result<Json> answer = has_line ? SkimJson(line) : Result<Json>(Json());
    const Json* place = answer.ok() ? answer->Find("index") : nullptr;
    if (place == nullptr || *place != Json(index)) {
      return BadInput("{}:{}: is not the answer to row {} of {}", answers.name(),
                      answers.line_number() + (has_line ? 0 : 1), index, reader->name());
    }
    for (std::string& cell : AnswerCells(*answer, columns, has_properties)) {
      cells.push_back(std::move(cell));
    }
    MINISGL_RETURN_IF_ERROR(file->Write(RecordOf(cells, separator)));
  }
  MINISGL_RETURN_IF_ERROR(input.status());
  return file->Commit();
}

}  // namespace minisgl::batch
