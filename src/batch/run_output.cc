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
  const bool has_journal =
      run->output_->is_regular_file() && input.reader != nullptr && input.reader->regular();
  if (options.resume && !has_journal) {
    return UsageError("--resume needs regular files: rows from {} cannot be resumed into {}",
                      input.reader->name(), Visible(options.output, 400));
  }
  if (!has_journal) return run;
  run->asked_ = asked;
  run->num_rows_ = input.check->rows;
  run->ordered_ = options.ordered;
  MINISGL_RETURN_IF_ERROR(run->CheckIsOurs(input, options.force));
  MINISGL_ASSIGN_OR_RETURN(
      run->run_, DescribeRun(options, *input.reader, *input.check, input.shard, input.model_dir));
  if (options.resume) MINISGL_RETURN_IF_ERROR(run->ReadOld(options, input, asked));
  return run;
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
  struct stat info {};
  const bool empty = stat(path.c_str(), &info) == 0 && info.st_size == 0;
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
  MINISGL_ASSIGN_OR_RETURN(old_, ReadOldOutput(path, resume));
  failed_before_ = old_->failed;
  scores_before_ = old_->scores;
  asked->finished = std::move(old_->finished);
  asked->earlier = std::move(old_->earlier);
  if (!empty) {
    Log(LogLevel::kInfo,
        fmt::format("resuming {}: {}{} rows answered, {} failed{}, {} to run", name,
                    old_->torn_at >= 0 ? "the last row is torn and runs again; " : "",
                    old_->answered, old_->failed,
                    old_->failed > 0 ? " (--retry-failed runs them again)" : "",
                    asked->Count(input.check->rows)));
  }
  return Status();
}

Status RunOutput::Begin() {
  if (old_) {
    MINISGL_RETURN_IF_ERROR(RepairOldOutput(output_->path(), *old_, ordered_));
    MINISGL_RETURN_IF_ERROR(output_->Reopen());
    old_->indexes = {};
    struct stat info {};
    if (stat(output_->path().c_str(), &info) == 0) old_bytes_ = info.st_size;
  }
  MINISGL_RETURN_IF_ERROR(output_->Begin());
  if (!run_) return Status();
  const Status written = WriteJournal(output_->path(), *run_);
  has_journal_ = written.ok();
  if (old_ || written.ok()) return written;
  Log(LogLevel::kWarning, written.message() + "; without it this run cannot be resumed");
  return Status();
}

Status RunOutput::Finish(bool all_written) {
  MINISGL_RETURN_IF_ERROR(output_->Finish());
  if (!old_ || !ordered_ || !all_written || !NeedsMerge(*asked_, num_rows_)) return Status();
  return MergeInOrder(output_->path(), *asked_, num_rows_, old_bytes_);
}

}  // namespace minisgl::batch
