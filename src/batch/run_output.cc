#include "batch/run_output.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <utility>

#include "batch/run_journal.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {

Result<std::unique_ptr<RunOutput>> RunOutput::Open(const RunOptions& options, const RunInput& input,
                                                   RowSelection* asked) {
  std::unique_ptr<RunOutput> run(new RunOutput());
  const int input_fd = input.reader == nullptr ? -1 : input.reader->fd();
  Result<std::unique_ptr<term::Output>> output =
      options.resume ? term::Output::OpenToAppend(options.output, input_fd)
                     : term::Output::Open(options.output, options.force, input_fd);
  const bool may_resume = !options.resume && !options.force && !options.output.empty();
  if (!output.ok() && may_resume && ReadJournal(options.output).ok()) {
    return Status(output.status().code(), output.status().message() + ", --resume continues it");
  }
  if (!output.ok()) return output.status();
  run->output_ = std::move(output).value();
  if (!options.errors.empty()) MINISGL_RETURN_IF_ERROR(run->OpenErrors(options, input_fd));
  run->sorts_files_ = !options.finished_file().empty() || !options.errors_table.empty();
  const bool has_journal =
      run->output_->is_regular_file() && input.reader != nullptr && input.reader->regular();
  const bool has_pipe = run->errors_ != nullptr && !run->errors_->output()->is_regular_file();
  if (options.resume && (!has_journal || has_pipe)) {
    return UsageError("--resume needs regular files: rows from {} cannot be resumed into {}",
                      input.reader->name(),
                      Visible(has_journal ? options.errors : options.output, 400));
  }
  if (!has_journal) return run;
  run->asked_ = asked;
  run->num_rows_ = input.check->rows;
  run->ordered_ = options.ordered && options.finished_file().empty();
  MINISGL_RETURN_IF_ERROR(run->CheckIsOurs(input, options.force));
  MINISGL_ASSIGN_OR_RETURN(
      run->run_, DescribeRun(options, *input.reader, *input.check, input.shard, input.model_dir));
  if (options.resume) MINISGL_RETURN_IF_ERROR(run->ReadOld(options, input, asked));
  return run;
}

Status RunOutput::OpenErrors(const RunOptions& options, int input_fd) {
  const std::string name = Visible(options.errors, 400);
  const bool has_name = output_->is_regular_file();
  if (has_name && IsSamePlace(options.errors, FileReplacement::PartOf(output_->path()))) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "--errors {}: is the temporary file of {}; choose another", name,
                      Visible(output_->path(), 400));
  }
  if (has_name && IsSamePlace(options.errors, output_->path())) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "--errors {}: names the same file as -o; choose another, or leave it out",
                      name);
  }
  Result<std::unique_ptr<term::Output>> file =
      options.resume ? term::Output::OpenToAppend(options.errors, input_fd)
                     : term::Output::Open(options.errors, options.force, input_fd);
  if (!file.ok()) return file.status().WithPrefix("--errors");
  if ((*file)->is_stdout() && output_->is_stdout()) {
    return UsageError("--errors -: answers are written to standard output already; name a file");
  }
  if ((*file)->IsSameFileAs(*output_)) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "--errors {}: answers are written to the same file; choose another", name);
  }
  if (!options.finished_file().empty() && !(*file)->is_regular_file()) {
    return UsageError("--errors {}: {} as -o is made beside a file of error rows; name one", name,
                      options.array.empty() ? "a table" : "an array");
  }
  errors_ = std::make_unique<ErrorFile>(std::move(file).value());
  return Status();
}

bool RunOutput::pipe_closed() const {
  return output_->pipe_closed() || (errors_ != nullptr && errors_->output()->pipe_closed());
}

// The name of the journal may belong to another file, which must not be overwritten.
Status RunOutput::CheckIsOurs(const RunInput& input, bool force) const {
  const std::string path = JournalPath(output_->path());
  struct stat journal {
  }, rows{};
  if (lstat(path.c_str(), &journal) != 0) return Status();
  if (S_ISLNK(journal.st_mode)) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is a symbolic link, and the journal of {} goes there; remove it",
                      Visible(path, 400), Visible(output_->path(), 400));
  }
  if (IsLocked(path)) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is already being written, by another run or for another option, and the "
                      "journal of {} goes there; choose another file, or wait",
                      Visible(path, 400), Visible(output_->path(), 400));
  }
  if (fstat(input.reader->fd(), &rows) == 0 && rows.st_dev == journal.st_dev &&
      rows.st_ino == journal.st_ino) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "{}: is the file that rows are read from, but the output's journal would "
                      "replace it; write to another",
                      Visible(path, 400));
  }
  const Status status = ReadJournal(output_->path()).status();
  if (force || status.ok() || journal.st_size == 0) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{}; the journal of {} goes there: write to another file, or give --force",
                    status.message(), Visible(output_->path(), 400));
}

Status RunOutput::ReadOld(const RunOptions& options, const RunInput& input, RowSelection* asked) {
  const std::string& path = output_->path();
  const std::string name = Visible(path, 400);
  const auto is_empty = [](const std::string& file) {
    struct stat info {};
    return stat(file.c_str(), &info) == 0 && info.st_size == 0;
  };
  // If all rows failed, their file alone has any.
  const bool empty = is_empty(path) && (errors_ == nullptr || is_empty(errors_->output()->path()));
  if (!empty && !options.force) {
    const Result<Json> before = ReadJournal(path);
    if (!before.ok()) {
      return MakeStatus(StatusCode::kCannotCreate,
                        "{}; it is not known what {} answers: --force resumes anyway",
                        before.status().message(), name);
    }
    MINISGL_ASSIGN_OR_RETURN(const std::string difference,
                             DifferenceOfRuns(*before, *run_, *input.reader, *input.check));
    if (!difference.empty()) {
      return MakeStatus(StatusCode::kCannotCreate, "{}: was begun with {}", name, difference);
    }
  }
  ResumeOptions resume;
  resume.check = input.check;
  resume.ids = input.ids;
  resume.retry_failed = options.retry_failed;
  MINISGL_ASSIGN_OR_RETURN(
      old_, ReadOldOutput(path, errors_ == nullptr ? "" : errors_->output()->path(), resume));
  failed_before_ = old_->failed;
  rows_before_ = old_->answered + old_->failed;
  scores_before_ = old_->scores;
  asked->finished = std::move(old_->finished);
  asked->earlier = std::move(old_->earlier);
  if (!empty) {
    Log(LogLevel::kInfo,
        fmt::format("resuming {}: {}{} rows answered, {} failed{}, {} to run", name,
                    old_->answers.torn_at >= 0 || old_->errors.torn_at >= 0
                        ? "the last row is torn and runs again; "
                        : "",
                    old_->answered, old_->failed,
                    old_->failed > 0 ? " (--retry-failed runs them again)" : "",
                    asked->Count(input.check->rows)));
  }
  return Status();
}

Status RunOutput::TakeOldFile(term::Output* output, OldLines* old, int64_t* bytes) const {
  MINISGL_RETURN_IF_ERROR(RepairOldFile(output->path(), *old, ordered_));
  MINISGL_RETURN_IF_ERROR(output->Reopen());
  old->indexes = {};
  struct stat info {};
  if (stat(output->path().c_str(), &info) == 0) *bytes = info.st_size;
  return Status();
}

Status RunOutput::Begin() {
  if (old_) {
    if (errors_ != nullptr) {
      errors_->NoteRows();
      for (const uint32_t index : old_->errors.indexes) {
        if (index != OldLines::kDroppedLine) errors_->Note(index);
      }
      MINISGL_RETURN_IF_ERROR(TakeOldFile(errors_->output(), &old_->errors, &old_error_bytes_));
    }
    MINISGL_RETURN_IF_ERROR(TakeOldFile(output_.get(), &old_->answers, &old_bytes_));
  }
  MINISGL_RETURN_IF_ERROR(output_->Begin());
  if (errors_ != nullptr) MINISGL_RETURN_IF_ERROR(errors_->output()->Begin());
  if (!run_) return Status();
  const Status written = WriteJournal(output_->path(), *run_);
  has_journal_ = written.ok();
  if (old_ || written.ok()) return written;
  Log(LogLevel::kWarning, written.message() + "; without it this run cannot be resumed");
  return Status();
}

Status RunOutput::MergeFile(const term::Output& output, int64_t old_bytes,
                            bool holds_errors) const {
  // The rows of the other file count as those of another shard.
  RowSelection rows;
  rows.first = asked_->first;
  rows.end = asked_->end;
  rows.finished = asked_->finished;
  rows.elsewhere = asked_->elsewhere;
  if (errors_ != nullptr) {
    rows.elsewhere.resize(static_cast<size_t>(num_rows_));
    for (int64_t index = 0; index < num_rows_; ++index) {
      if (errors_->Has(index) != holds_errors) rows.elsewhere[static_cast<size_t>(index)] = true;
    }
  }
  if (!NeedsMerge(rows, num_rows_)) return Status();
  return MergeInOrder(output.path(), rows, num_rows_, old_bytes);
}

Status RunOutput::Finish(bool all_written) {
  MINISGL_RETURN_IF_ERROR(output_->Finish());
  if (errors_ != nullptr) MINISGL_RETURN_IF_ERROR(errors_->output()->Finish());
  if (!all_written) return Status();
  if (old_ && ordered_) {
    MINISGL_RETURN_IF_ERROR(MergeFile(*output_, old_bytes_, /*holds_errors=*/false));
    if (errors_ != nullptr) {
      MINISGL_RETURN_IF_ERROR(
          MergeFile(*errors_->output(), old_error_bytes_, /*holds_errors=*/true));
    }
  }
  if (!sorts_files_) return Status();
  MINISGL_RETURN_IF_ERROR(SortByIndex(output_->path()));
  return errors_ == nullptr ? Status() : SortByIndex(errors_->output()->path());
}

}  // namespace minisgl::batch
