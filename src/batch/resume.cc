#include "batch/resume.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "batch/row_output.h"
#include "batch/skim_json.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

constexpr size_t kTailBytes = size_t{1} << 20;
constexpr int64_t kNoLine = -1;

Status ReadFailure(const std::string& path) {
  return MakeStatus(StatusCode::kIoError, "{}: cannot be read ({})", Visible(path, 400),
                    std::strerror(errno));
}

// Far above the size of one row's answers: `n` answers with log-probabilities take megabytes.
constexpr size_t kOldLineBytesMax = size_t{512} << 20;

// Reads raw lines of a file from any offset. Memory: one buffer and one line.
class RawLines {
 public:
  static Result<std::unique_ptr<RawLines>> Open(const std::string& path, int64_t offset) {
    std::unique_ptr<RawLines> lines(new RawLines(path, offset));
    if (lines->fd_ < 0) return ReadFailure(path);
    return lines;
  }
  ~RawLines() {
    if (fd_ >= 0) close(fd_);
  }
  RawLines(const RawLines&) = delete;
  RawLines& operator=(const RawLines&) = delete;

  // Returns the next line with its line break, which the last line may lack. Valid until the next
  // call. nullopt at the end.
  Result<std::optional<std::string_view>> Next() {
    size_t scanned = begin_;
    while (true) {
      const size_t line_break = buffer_.find('\n', scanned);
      if (line_break != std::string::npos) return Take(line_break + 1);
      scanned = buffer_.size() - begin_;
      buffer_.erase(0, std::exchange(begin_, 0));
      const size_t size = buffer_.size();
      if (size > kOldLineBytesMax) {
        return BadInput("{}: a line has more than {} bytes; remove it, or write to another file",
                        Visible(path_, 400), kOldLineBytesMax);
      }
      buffer_.resize(size + kTailBytes);
      const ssize_t got = pread(fd_, buffer_.data() + size, kTailBytes, offset_);
      buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ReadFailure(path_);
      offset_ += got;
      if (got > 0) continue;
      if (buffer_.empty()) return std::optional<std::string_view>();
      return Take(buffer_.size());
    }
  }
  // Offset of the line that Next returns next.
  int64_t place() const { return offset_ - static_cast<int64_t>(buffer_.size() - begin_); }
  void GoTo(int64_t offset) {
    offset_ = offset;
    buffer_.clear();
    begin_ = 0;
  }

 private:
  RawLines(const std::string& path, int64_t offset)
      : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), offset_(offset) {}
  std::optional<std::string_view> Take(size_t end) {
    const std::string_view line(buffer_.data() + begin_, end - begin_);
    begin_ = end;
    return line;
  }

  const std::string path_;
  const int fd_;
  int64_t offset_;  // of the next read
  std::string buffer_;
  size_t begin_ = 0;
};

struct Outcome {
  int64_t index = 0;
  bool failed = false;
  bool by_run = false;  // the failure was the run's, not the row's
};

bool IsRunsFailure(const Json* code) {
  if (code == nullptr || !code->is_string()) return false;
  const std::string& text = code->as_string();
  return text == "cancelled" || text == "device_fault" || text == "internal";
}

Status CheckIndex(int64_t index, const FileCheck& check) {
  if (index >= 0 && index < check.rows) return Status();
  return BadInput("answers row {}; the input has {}", index, check.rows);
}

// Returns the index of the first row with `id`. An error row may belong to a later row with the
// same id, which it names by its line.
Result<int64_t> IndexOfBatchRow(const Json& id, const Json* error, const ResumeOptions& options) {
  const std::optional<int64_t> first = options.ids->Find(id);
  if (!first) return BadInput("answers the row {}, which the input lacks", Visible(id.Dump(), 100));
  const Json* line = error == nullptr ? nullptr : error->Find("line");
  if (line == nullptr || !line->is_int()) return *first;
  const std::vector<DuplicateRow>& duplicates = options.check->duplicates;
  const auto found = std::lower_bound(
      duplicates.begin(), duplicates.end(), line->as_int(),
      [](const DuplicateRow& duplicate, int64_t value) { return duplicate.line < value; });
  const bool is_later =
      found != duplicates.end() && found->line == line->as_int() && found->first_index == *first;
  return is_later ? found->index : *first;
}

bool EndedByItself(const Json& finish_reason) {
  return finish_reason == Json("stop") || finish_reason == Json(kCallsFinish);
}

// A row in OpenAI Batch format, whose only reference to the input is its id.
Result<Outcome> OutcomeOfBatchRow(const Json& row, const ResumeOptions& options) {
  const Json *error = row.Find("error"), *response = row.Find("response");
  const Json* status = response == nullptr ? nullptr : response->Find("status_code");
  const Json* body = response == nullptr ? nullptr : response->Find("body");
  const Json* body_error = body == nullptr ? nullptr : body->Find("error");
  Outcome outcome;
  MINISGL_ASSIGN_OR_RETURN(outcome.index,
                           IndexOfBatchRow(*row.Find("custom_id"), body_error, options));
  if (error != nullptr && error->is_object()) {
    outcome.failed = true;
    outcome.by_run = IsRunsFailure(error->Find("code"));
    return outcome;
  }
  if (status == nullptr || !status->is_int() || body == nullptr) {
    return BadInput("is not an answer row (it has custom_id and neither error nor response.body)");
  }
  if (status->as_int() == 200) {
    const Json *const warnings = body->Find("warnings"), *const choices = body->Find("choices");
    outcome.failed = warnings != nullptr && choices != nullptr && choices->is_array() &&
                     HasCutWarning(*warnings, choices->as_array().size()) &&
                     std::none_of(choices->as_array().begin(), choices->as_array().end(),
                                  [](const Json& choice) {
                                    const Json* const reason = choice.Find("finish_reason");
                                    return reason != nullptr && EndedByItself(*reason);
                                  });
    return outcome;
  }
  outcome.failed = true;
  outcome.by_run = body_error != nullptr && IsRunsFailure(body_error->Find("code"));
  return outcome;
}

// Rejects a line that was added by hand or belongs to another input, instead of taking it as the
// answer to the row with its index.
Status CheckId(const Json& id, const Outcome& outcome, const ResumeOptions& options) {
  const FileCheck& check = *options.check;
  if (id.is_null()) {
    if (outcome.failed || !check.has_id[static_cast<size_t>(outcome.index)]) return Status();
    return BadInput("has the index {} and no id; that row of the input has one", outcome.index);
  }
  const std::optional<int64_t> first = options.ids->Find(id);
  const DuplicateRow* duplicate = check.FindDuplicate(outcome.index);
  if (first == outcome.index ||
      (first && duplicate != nullptr && duplicate->first_index == *first)) {
    return Status();
  }
  if (!first) return BadInput("answers the row {}, which the input lacks", Visible(id.Dump(), 100));
  return BadInput("has the id {} and the index {}; the input has that id at {}",
                  Visible(id.Dump(), 100), outcome.index, *first);
}

Result<Outcome> OutcomeOf(const Json& row, const ResumeOptions& options) {
  if (!row.is_object()) return BadInput("is not an answer row (found {})", row.TypeName());
  const Json *id = row.Find("id"), *index = row.Find("index"), *error = row.Find("error");
  Outcome outcome;
  if (row.Find("custom_id") != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(outcome, OutcomeOfBatchRow(row, options));
    MINISGL_RETURN_IF_ERROR(CheckIndex(outcome.index, *options.check));
    return outcome;
  }
  if (index == nullptr || !index->is_int() || id == nullptr) {
    return BadInput("is not an answer row (it has neither id and index nor custom_id)");
  }
  outcome.index = index->as_int();
  outcome.failed = error != nullptr;
  outcome.by_run = error != nullptr && IsRunsFailure(error->Find("code"));
  MINISGL_RETURN_IF_ERROR(CheckIndex(outcome.index, *options.check));
  MINISGL_RETURN_IF_ERROR(CheckId(*id, outcome, options));
  return outcome;
}

// Notes a complete row; a second row with the same index is dropped. Returns whether it is kept.
bool NoteRow(const Outcome& outcome, const ResumeOptions& options, OldOutput* old,
             OldLines* lines) {
  const auto place = static_cast<size_t>(outcome.index);
  const bool again = outcome.failed && (outcome.by_run || options.retry_failed);
  if (again || old->finished[place]) {
    old->asked_again += again ? 1 : 0;
    lines->any_dropped = true;
    lines->indexes.push_back(OldLines::kDroppedLine);
    return false;
  }
  old->finished[place] = true;
  ++(outcome.failed ? old->failed : old->answered);
  lines->indexes.push_back(static_cast<uint32_t>(outcome.index));
  return true;
}

// Answers of a session depend on those before them. A row of a session after one that is asked
// becomes one that is asked. Returns by number whether a session goes on.
std::vector<bool> ReopenSessions(const FileCheck& check, OldOutput* old) {
  std::vector<bool> goes_on(check.sessions.size() + 1);
  for (int64_t index = 0; index < std::ssize(check.session_of_row); ++index) {
    const uint32_t session = check.SessionOf(index);
    if (session == 0) continue;
    const auto place = static_cast<size_t>(index);
    if (!old->finished[place]) goes_on[session] = true;
    if (goes_on[session]) old->finished[place] = false;
  }
  return goes_on;
}

// Reads the ids of an answer; returns false if they are missing.
bool ReadIds(const Json& answer, std::vector<TokenId>* read) {
  const Json* const ids = answer.Find("token_ids");
  if (ids == nullptr || !ids->is_array()) return false;
  for (const Json& id : ids->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > std::numeric_limits<TokenId>::max()) {
      return false;
    }
    read->push_back(static_cast<TokenId>(id.as_int()));
  }
  return true;
}

// Reads the answers whose calls were run, and the results behind each.
bool ReadRounds(const Json& messages, std::vector<EarlierAnswer::Round>* rounds) {
  if (!messages.is_array()) return false;
  for (const Json& message : messages.as_array()) {
    const Json *const role = message.Find("role"), *const content = message.Find("content");
    if (role == nullptr || content == nullptr || !content->is_string()) return false;
    if (*role == Json("assistant")) {
      EarlierAnswer::Round& round = rounds->emplace_back();
      round.results = Json(Json::Array());
      if (!ReadIds(message, &round.ids)) return false;
    } else if (*role == Json("tool") && !rounds->empty()) {
      rounds->back().results.Append(message);
    } else {
      return false;
    }
  }
  return true;
}

// Adds an answer, by its ids; returns false if they are missing.
bool AddTurn(const Json& answer, EarlierAnswer* earlier) {
  const Json* const reason = answer.Find("finish_reason");
  if (reason == nullptr) return false;
  EarlierAnswer::Turn& turn = earlier->turns.emplace_back();
  turn.stopped = EndedByItself(*reason);
  const Json* const messages = answer.Find("tool_messages");
  if (messages != nullptr && !ReadRounds(*messages, &turn.rounds)) return false;
  return ReadIds(answer, &turn.ids);
}

Result<EarlierAnswer> ReadEarlier(const Json& row) {
  EarlierAnswer earlier;
  // An answer that was cut is one, and its session goes on.
  const Json* const error = row.Find("error");
  const Json* const code = error == nullptr ? nullptr : error->Find("code");
  earlier.failed = error != nullptr && (code == nullptr || *code != Json(kIncompleteAnswer));
  if (earlier.failed) return earlier;
  const Json* const turns = row.Find("turns");
  bool is_whole = true;
  if (turns == nullptr || !turns->is_array()) {
    is_whole = AddTurn(row, &earlier);
  } else {
    for (const Json& turn : turns->as_array()) is_whole = is_whole && AddTurn(turn, &earlier);
  }
  if (is_whole && !earlier.turns.empty()) return earlier;
  return BadInput("lacks the token_ids from which its session goes on");
}

// Reads again what sessions go on from. Memory: the ids of their answers.
Status ReadSessions(const std::string& path, const FileCheck& check,
                    const std::vector<bool>& goes_on, OldOutput* old, OldLines* file) {
  if (file->indexes.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<RawLines> lines, RawLines::Open(path, 0));
  int64_t number = 0;
  for (uint32_t& index : file->indexes) {
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    ++number;
    const uint32_t session = index == OldLines::kDroppedLine ? 0 : check.SessionOf(index);
    if (!line || session == 0 || !goes_on[session]) continue;
    Result<Json> row = ParseJson(*line);
    Result<EarlierAnswer> earlier =
        row.ok() ? ReadEarlier(*row) : Result<EarlierAnswer>(row.status());
    if (!earlier.ok()) {
      return BadInput("{}:{}: {}; correct or remove this line, or write to another file",
                      Visible(path, 400), number, earlier.status().message());
    }
    if (old->finished[index]) {
      old->earlier.emplace(index, std::move(*earlier));
      continue;
    }
    --(earlier->failed ? old->failed : old->answered);
    ++old->asked_again;
    file->any_dropped = true;
    index = OldLines::kDroppedLine;
  }
  return Status();
}

// Writes the kept lines sorted by index, each with a line break.
Status WriteSorted(const std::string& path, const OldLines& old, RawLines* lines,
                   FileReplacement* file) {
  std::vector<int64_t> places;
  for (const uint32_t index : old.indexes) {
    const int64_t place = lines->place();
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    if (!line || index == OldLines::kDroppedLine) continue;
    if (index >= places.size()) places.resize(size_t{index} + 1, kNoLine);
    places[index] = place;
  }
  for (const int64_t place : places) {
    if (place == kNoLine) continue;
    if (place != lines->place()) lines->GoTo(place);
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    if (!line)
      return BadInput("{}: was changed meanwhile; run the command again", Visible(path, 400));
    MINISGL_RETURN_IF_ERROR(file->Write(*line));
    if (!line->ends_with('\n')) MINISGL_RETURN_IF_ERROR(file->Write("\n"));
  }
  return Status();
}

Status WriteKept(const OldLines& old, RawLines* lines, FileReplacement* file) {
  for (const uint32_t index : old.indexes) {
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    if (!line || index == OldLines::kDroppedLine) continue;
    MINISGL_RETURN_IF_ERROR(file->Write(*line));
    if (!line->ends_with('\n')) MINISGL_RETURN_IF_ERROR(file->Write("\n"));
  }
  return Status();
}

// Repairs the end of the last line in place.
Status RepairTail(const std::string& path, const OldLines& old) {
  if (old.torn_at < 0 && !old.lacks_line_break) return Status();
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const bool done = fd >= 0 &&
                    (old.torn_at < 0 ? WriteAll(fd, "\n") : ftruncate(fd, old.torn_at) == 0) &&
                    SyncFile(fd);
  const int error = errno;
  if (fd >= 0) close(fd);
  if (done) return Status();
  return MakeStatus(StatusCode::kIoError, "{}: cannot be written ({})", Visible(path, 400),
                    std::strerror(error));
}

// Reads the lines of one of the files; adds what they say to *old.
Status ReadLines(const std::string& path, const ResumeOptions& options, bool holds_errors,
                 OldOutput* old, OldLines* file) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 && errno == ENOENT) return Status();
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<RawLines> lines, RawLines::Open(path, 0));
  int64_t last_index = -1;
  for (int64_t number = 1;; ++number) {
    const int64_t place = lines->place();
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    if (!line) return Status();
    const bool whole = line->ends_with('\n');
    const Result<Json> row = SkimJson(whole ? line->substr(0, line->size() - 1) : *line);
    if (!row.ok() && !whole) {
      file->torn_at = place;
      return Status();
    }
    Result<Outcome> outcome = row.ok() ? OutcomeOf(*row, options) : Result<Outcome>(row.status());
    if (outcome.ok() && holds_errors && !outcome->failed) {
      outcome = BadInput("is an answer, and --errors names a file of error rows");
    }
    if (!outcome.ok()) {
      return BadInput("{}:{}: {}; correct or remove this line, or write to another file",
                      Visible(path, 400), number, outcome.status().message());
    }
    file->lacks_line_break = !whole;
    if (!NoteRow(*outcome, options, old, file)) continue;
    old->scores.AddWritten(*row);
    file->ascending = file->ascending && outcome->index > last_index;
    last_index = outcome->index;
  }
}

}  // namespace

Result<OldOutput> ReadOldOutput(const std::string& path, const std::string& errors_path,
                                const ResumeOptions& options) {
  const FileCheck& check = *options.check;
  if (check.rows >= int64_t{OldLines::kDroppedLine}) {
    return UsageError("--resume takes at most {} rows (found {}); split the input",
                      OldLines::kDroppedLine - 1, check.rows);
  }
  OldOutput old;
  old.finished.resize(static_cast<size_t>(check.rows));
  MINISGL_RETURN_IF_ERROR(ReadLines(path, options, /*holds_errors=*/false, &old, &old.answers));
  if (!errors_path.empty()) {
    MINISGL_RETURN_IF_ERROR(
        ReadLines(errors_path, options, /*holds_errors=*/true, &old, &old.errors));
  }
  if (check.sessions.empty()) return old;
  const std::vector<bool> goes_on = ReopenSessions(check, &old);
  MINISGL_RETURN_IF_ERROR(ReadSessions(path, check, goes_on, &old, &old.answers));
  MINISGL_RETURN_IF_ERROR(ReadSessions(errors_path, check, goes_on, &old, &old.errors));
  return old;
}

Status RepairOldFile(const std::string& path, const OldLines& old, bool ordered) {
  FileReplacement::RemoveLeftover(path);
  const bool sorts = ordered && !old.ascending;
  if (!old.any_dropped && !sorts) return RepairTail(path, old);
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<RawLines> lines, RawLines::Open(path, 0));
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<FileReplacement> file,
                           FileReplacement::Begin(path, {.sole_writer = true}));
  MINISGL_RETURN_IF_ERROR(sorts ? WriteSorted(path, old, lines.get(), file.get())
                                : WriteKept(old, lines.get(), file.get()));
  return file->Commit();
}

Status SortByIndex(const std::string& path) {
  OldLines rows;
  int64_t last_index = -1;
  {
    MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<RawLines> lines, RawLines::Open(path, 0));
    while (true) {
      MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
      if (!line) break;
      const Result<Json> row = SkimJson(*line);
      const Json* const index = row.ok() ? row->Find("index") : nullptr;
      const bool is_valid = index != nullptr && index->is_int() && index->as_int() >= 0 &&
                            index->as_int() < int64_t{OldLines::kDroppedLine};
      if (!is_valid) {
        return BadInput("{}:{}: is no row with an index; remove this line", Visible(path, 400),
                        rows.indexes.size() + 1);
      }
      rows.ascending = rows.ascending && index->as_int() > last_index;
      last_index = index->as_int();
      rows.indexes.push_back(static_cast<uint32_t>(last_index));
    }
  }
  return RepairOldFile(path, rows, /*ordered=*/true);
}

bool NeedsMerge(const RowSelection& asked, int64_t num_rows) {
  bool any_asked = false;
  for (int64_t index = asked.first; index < std::min(asked.end, num_rows); ++index) {
    if (!asked.Owns(index)) continue;
    if (any_asked && !asked.Has(index)) return true;
    any_asked = any_asked || asked.Has(index);
  }
  return false;
}

Status MergeInOrder(const std::string& path, const RowSelection& asked, int64_t num_rows,
                    int64_t old_bytes) {
  MINISGL_ASSIGN_OR_RETURN(const auto old_lines, RawLines::Open(path, 0));
  MINISGL_ASSIGN_OR_RETURN(const auto new_lines, RawLines::Open(path, old_bytes));
  MINISGL_ASSIGN_OR_RETURN(const auto file, FileReplacement::Begin(path, {.sole_writer = true}));
  for (int64_t index = asked.first; index < std::min(asked.end, num_rows); ++index) {
    if (!asked.Owns(index)) continue;
    RawLines* lines = asked.Has(index) ? new_lines.get() : old_lines.get();
    MINISGL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines->Next());
    if (!line) {
      return MakeStatus(StatusCode::kIoError,
                        "{}: was changed meanwhile; its rows stay as they came",
                        Visible(path, 400));
    }
    MINISGL_RETURN_IF_ERROR(file->Write(*line));
  }
  return file->Commit();
}

}  // namespace minisgl::batch
