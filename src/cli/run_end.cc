#include "cli/run_end.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "batch/array_output.h"
#include "batch/table_output.h"
#include "load/sampling.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

// Logs that `count` answers of the finished `table` are no JSON objects. Returns the exit status.
int SayNoObjects(int64_t count, const std::string& table) {
  if (count == 0) return 0;
  Log(LogLevel::kWarning,
      fmt::format("{}: {} no JSON object; the column error has {}", Visible(table, 400),
                  count == 1 ? "an answer is" : term::FormatCount(count) + " answers are",
                  count == 1 ? "it" : "them"));
  return term::kExitSomeFailed;
}

}  // namespace

void SaySummary(const batch::RunOptions& options, const report::RunSummary& summary,
                bool one_prompt) {
  // The answer to a single prompt speaks for itself; print its summary only if verbose.
  if (!options.model.quiet && (!one_prompt || options.model.verbose)) {
    term::PrintStderr(report::FormatSummary(summary));
  }
  if (options.reports.stats) term::PrintStderr(report::FormatStats(summary.stats));
}

void ReportFailures(const batch::RunOptions& options, const batch::Failures& failures,
                    const batch::RunOutput& output) {
  if (std::string text = failures.Text(); !text.empty()) {
    const std::string& file = options.errors_table.empty() ? options.errors : options.errors_table;
    if (!file.empty() && file != "-") text += fmt::format("; all are in {}", Visible(file, 400));
    Log(LogLevel::kWarning, text);
  }
  // When the run was resumed, a note reported this already.
  if (output.failed_before() == 0 || !options.model.quiet) return;
  Log(LogLevel::kWarning,
      fmt::format("{} failed before; --retry-failed runs them again", output.failed_before()));
}

void SayRowsLeft(int64_t count, const batch::RunOutput& output) {
  if (count == 0 || !output.can_resume()) return;
  Log(LogLevel::kInfo, fmt::format("stopped; --resume goes on with the {} {} without an answer",
                                   term::FormatCount(count), count == 1 ? "row" : "rows"));
}

void SayTimeouts(const batch::RunLoop& loop, const batch::RunOptions& options) {
  if (const int64_t count = loop.rows_retried(); count > 0) {
    Log(LogLevel::kInfo, fmt::format("{} took too long and {} asked again (--retry-timeouts)",
                                     count == 1 ? "a row" : term::FormatCount(count) + " rows",
                                     count == 1 ? "was" : "were"));
  }
  const auto& reasons = loop.finish_reasons();
  const auto cut = reasons.find("timeout");
  if (cut == reasons.end()) return;
  Log(LogLevel::kWarning,
      fmt::format(
          "{} cut since {} took too long (timeout_s){}",
          cut->second == 1 ? "an answer was" : term::FormatCount(cut->second) + " answers were",
          cut->second == 1 ? "it" : "they",
          options.retry_timeouts == 0 ? "; --retry-timeouts asks such rows again" : ""));
}

Result<int> FinishFiles(const batch::RunOptions& options, batch::LineReader* reader,
                        const batch::RowSelection& asked, const batch::RunOutput& output,
                        bool all_written) {
  const bool of_answers = !options.finished_file().empty();
  const std::string& first = of_answers ? options.finished_file() : options.errors_table;
  if (first.empty()) return 0;
  if (!all_written) {
    Log(LogLevel::kInfo,
        fmt::format("{} is written after all rows are answered{}", Visible(first, 400),
                    output.can_resume() ? "; --resume goes on" : ""));
    return 0;
  }
  const auto advise = [&](const Status& status) {
    const std::string& rows = of_answers ? options.output : options.errors;
    return Status(status.code(),
                  fmt::format("{}; its rows are kept in {}{}", status.message(), Visible(rows, 400),
                              output.can_resume() ? ", and --resume makes the file of them" : ""));
  };
  if (!options.array.empty()) {
    if (const Status written = batch::WriteArray(options); !written.ok()) return advise(written);
    if (options.errors_table.empty()) return 0;
  }
  const Result<int64_t> written = batch::WriteTables(options, reader, asked);
  return written.ok() ? Result<int>(SayNoObjects(*written, first)) : advise(written.status());
}

void SayCutAnswers(const batch::RunOptions& options, const GenerationConfig& generation,
                   int64_t count) {
  if (count == 0) return;
  const int64_t limit = load::ResolveSamplingDefaults(options.sampling, generation).max_tokens;
  Log(LogLevel::kInfo,
      fmt::format(
          "{} cut after {} tokens, the default of {} (--max-tokens N; -1 is no limit)",
          count == 1 ? std::string("an answer was") : term::FormatCount(count) + " answers were",
          limit, load::kGenerationConfig));
}

term::ProgressKind ProgressOf(const batch::RunOptions& options, bool as_text,
                              const term::Output& output) {
  const bool disturbs = as_text || (term::StderrIsTerminal() && output.is_terminal());
  const bool hides = options.model.quiet || disturbs;
  const bool is_auto = options.progress == term::ProgressKind::kAuto;
  return is_auto && hides ? term::ProgressKind::kNone : options.progress;
}

void EndProgress(const batch::RunLoop& loop, const Runtime& runtime, term::Progress* progress) {
  term::Progress::Numbers numbers = loop.Numbers();
  numbers.stats = runtime.Stats().scheduler;
  progress->End(numbers);
}

}  // namespace minisgl::cli
