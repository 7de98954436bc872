// minisgl report: draws the summary files of runs as one SVG: throughput, batch size and cache hits
// over time. Loads no model.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "load/options.h"
#include "minisgl/base/utf8.h"
#include "report/run_figures.h"
#include "report/svg_chart.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

// Runs of which one takes so many times as long as another share no axis of seconds.
constexpr double kSharesFrom = 4;

// More points than this are noise at the width of the picture.
constexpr size_t kChartPointsMax = 120;

struct ReportCommandOptions {
  std::vector<std::string> files;
  std::string output;
  std::string title;
  bool force = false;
};

struct NamedRun {
  std::string name;  // of its file
  report::RunFigures figures;
};

using Values = std::vector<double> term::TimeSeries::*;

// Weights of the values in a mean.
enum class CountBy : uint8_t {
  kTime,
  kTimeOfSteps,  // intervals without a step do not count
  kPrompts,      // prompt tokens, so that the share of a few tokens counts little
};

// A curve of a run, from `column` of its time series.
struct Curve {
  Values column;
  CountBy count_by = CountBy::kTime;
  double factor = 1;
};

// Returns the mean of `curve` over points [begin, end) of `series`; nullopt if their weight is 0.
std::optional<double> MeanOf(const term::TimeSeries& series, const Curve& curve, size_t begin,
                             size_t end) {
  double sum = 0, weights = 0;
  for (size_t i = begin; i < end; ++i) {
    double weight = series.time_s[i] - (i > 0 ? series.time_s[i - 1] : 0);
    if (curve.count_by == CountBy::kPrompts) weight *= series.prompt_tokens_per_s[i];
    if (curve.count_by == CountBy::kTimeOfSteps && series.batch_size[i] == 0) weight = 0;
    sum += weight * (series.*curve.column)[i];
    weights += weight;
  }
  if (!(weights > 0)) return std::nullopt;
  return curve.factor * sum / weights;
}

// Returns at most kChartPointsMax points of `curve`, and its mean: `mean` if the run's totals give
// it.
report::ChartSeries Drawn(const std::string& name, int colour, const term::TimeSeries& series,
                          const Curve& curve, std::optional<double> mean = {}) {
  const size_t count = series.time_s.size();
  const size_t group = (count + kChartPointsMax - 1) / kChartPointsMax;
  report::ChartSeries drawn{name, colour, {}, mean ? mean : MeanOf(series, curve, 0, count)};
  for (size_t begin = 0; begin < count; begin += group) {
    const size_t end = std::min(begin + group, count);
    const std::optional<double> value = MeanOf(series, curve, begin, end);
    if (value) drawn.points.emplace_back(series.time_s[end - 1], *value);
  }
  return drawn;
}

// Exact means from the run's totals, if it has these figures.
std::optional<double> HitPercent(const report::RunFigures& run) {
  if (run.prompt_tokens == 0) return std::nullopt;
  return 100 * static_cast<double>(run.cached_tokens) / static_cast<double>(run.prompt_tokens);
}

std::optional<double> RowsInAStep(const report::RunFigures& run) {
  if (run.steps.value_or(0) == 0 || !run.step_rows) return std::nullopt;
  return static_cast<double>(*run.step_rows) / static_cast<double>(*run.steps);
}

bool AnyAbove0(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return value > 0; });
}

std::vector<report::ChartPanel> PanelsOfOne(const report::RunFigures& run) {
  const term::TimeSeries& series = *run.series;
  const auto drawn = [&series](const char* name, int colour, const Curve& curve,
                               std::optional<double> mean = {}) {
    return Drawn(name, colour, series, curve, mean);
  };
  std::vector<report::ChartPanel> panels = {
      {"Answers", "tokens/s", {drawn("out", 0, {&term::TimeSeries::completion_tokens_per_s})}, {}},
      {"Prompts",
       "tokens/s",
       {drawn("asked", 5, {&term::TimeSeries::prompt_tokens_per_s}),
        drawn("computed", 1, {&term::TimeSeries::computed_tokens_per_s})},
       {}},
      {"Batch",
       "rows",
       {drawn("running", 5, {&term::TimeSeries::running}),
        drawn("in a step", 2, {&term::TimeSeries::batch_size, CountBy::kTimeOfSteps},
              RowsInAStep(run))},
       {}},
      {"Cache",
       "%",
       {drawn("hits", 3, {&term::TimeSeries::cache_hit_percent, CountBy::kPrompts},
              HitPercent(run))},
       100}};
  if (run.pages_total.value_or(0) > 0) {
    const double percent = 100 / static_cast<double>(*run.pages_total);
    panels.back().series.push_back(
        drawn("pages in use", 5, {&term::TimeSeries::pages_used, CountBy::kTime, percent}));
  }
  if (AnyAbove0(series.waiting)) {
    panels.push_back(
        {"Queue", "requests", {drawn("waiting", 4, {&term::TimeSeries::waiting})}, {}});
  }
  return panels;
}

std::vector<report::ChartPanel> PanelsOfSeveral(const std::vector<NamedRun>& runs) {
  const struct {
    const char* title;
    const char* unit;
    Curve curve;
    std::optional<double> (*mean)(const report::RunFigures& run);
    std::optional<double> top;
  } kinds[] = {
      {"Answers", "tokens/s", {&term::TimeSeries::completion_tokens_per_s}, nullptr, {}},
      {"Prompts computed", "tokens/s", {&term::TimeSeries::computed_tokens_per_s}, nullptr, {}},
      {"Rows in a step",
       "rows",
       {&term::TimeSeries::batch_size, CountBy::kTimeOfSteps},
       RowsInAStep,
       {}},
      {"Cache hits",
       "%",
       {&term::TimeSeries::cache_hit_percent, CountBy::kPrompts},
       HitPercent,
       100}};
  std::vector<report::ChartPanel> panels;
  for (const auto& kind : kinds) {
    report::ChartPanel panel = {kind.title, kind.unit, {}, kind.top};
    for (size_t i = 0; i < runs.size(); ++i) {
      const report::RunFigures& run = runs[i].figures;
      panel.series.push_back(Drawn(fmt::format("{}", i + 1), static_cast<int>(i), *run.series,
                                   kind.curve,
                                   kind.mean != nullptr ? kind.mean(run) : std::nullopt));
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

double PerSecond(int64_t count, const report::RunFigures& run) {
  return run.seconds > 0 ? static_cast<double>(count) / run.seconds : 0;
}

std::string Totals(const report::RunFigures& run) {
  const int64_t failed = run.rows_failed - run.rows_cancelled;
  std::string text = fmt::format(
      "{} rows in {}", term::FormatCount(run.rows_done + failed),
      run.seconds < 60 ? fmt::format("{:.1f} s", run.seconds) : term::FormatDuration(run.seconds));
  if (failed > 0) text += fmt::format(", {} failed", term::FormatCount(failed));
  if (run.rows_cancelled > 0) {
    text += fmt::format(", {} more not answered", term::FormatCount(run.rows_cancelled));
  }
  const std::string in = report::TickLabel(PerSecond(run.prompt_tokens, run));
  if (run.perplexity) {
    text += fmt::format(": perplexity {:.6g} over {} tokens; {} tokens/s in", *run.perplexity,
                        term::FormatCount(*run.scored_tokens), in);
  } else {
    text += fmt::format(": {} tokens/s out, {} in",
                        report::TickLabel(PerSecond(run.completion_tokens, run)), in);
  }
  if (const std::optional<double> percent = HitPercent(run)) {
    text += fmt::format("; {:.1f} % of {} prompt tokens cached", *percent,
                        report::TickLabel(static_cast<double>(run.prompt_tokens)));
  }
  if (run.preemptions > 0)
    text += fmt::format("; {} preemptions", term::FormatCount(run.preemptions));
  return text;
}

std::string Settings(const report::RunFigures& run) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  };
  add(Visible(run.device, 60));
  add(Visible(run.weights, 20));
  if (run.max_running_requests) add(fmt::format("{} requests at once", *run.max_running_requests));
  if (run.pages_total && run.page_size) {
    add(fmt::format("{} pages of {} tokens", term::FormatCount(*run.pages_total), *run.page_size));
  }
  if (!run.version.empty()) add("minisgl " + Visible(run.version, 20));
  return text;
}

std::string ModelOf(const report::RunFigures& run) {
  return run.model.empty() ? "a run" : Visible(run.model, 60);
}

double SecondsOf(const NamedRun& run) {
  const std::vector<double>& times = run.figures.series->time_s;
  return std::max(run.figures.seconds, times.empty() ? 0 : times.back());
}

// Gives each run the whole width: beside a much longer one its curve would be a smear.
void ShowShares(const std::vector<NamedRun>& runs, report::Chart* chart) {
  for (report::ChartPanel& panel : chart->panels) {
    for (size_t i = 0; i < panel.series.size(); ++i) {
      for (auto& [second, value] : panel.series[i].points) second *= 100 / SecondsOf(runs[i]);
    }
  }
  chart->in_shares = true;
  chart->seconds = 100;
  chart->lines.push_back(
      {"The times of the runs differ much: each one is drawn from its beginning "
       "(0 %) to its end (100 %)",
       {}});
}

report::Chart MakeChart(const std::vector<NamedRun>& runs, const std::string& title) {
  report::Chart chart;
  const report::RunFigures& first = runs.front().figures;
  if (runs.size() == 1) {
    chart.title = ModelOf(first);
    chart.lines = {{Totals(first), {}}};
    if (const std::string settings = Settings(first); !settings.empty()) {
      chart.lines.push_back({settings, {}});
    }
    chart.panels = PanelsOfOne(first);
  } else {
    chart.title = fmt::format("{} runs", runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      chart.lines.push_back({fmt::format("{}  {}: {}, {}", i + 1, Visible(runs[i].name, 30),
                                         ModelOf(runs[i].figures), Totals(runs[i].figures)),
                             static_cast<int>(i)});
    }
    chart.panels = PanelsOfSeveral(runs);
  }
  if (!title.empty()) chart.title = title;
  double shortest = SecondsOf(runs.front());
  for (const NamedRun& run : runs) {
    chart.seconds = std::max(chart.seconds, SecondsOf(run));
    shortest = std::min(shortest, SecondsOf(run));
  }
  if (shortest > 0 && chart.seconds > kSharesFrom * shortest) ShowShares(runs, &chart);
  return chart;
}

Result<NamedRun> ReadRun(const std::string& path) {
  const std::string where = path == "-" ? "standard input" : Visible(path, 400);
  MINISGL_ASSIGN_OR_RETURN(const Json json, report::ReadJsonFile(path));
  NamedRun run;
  run.name = path == "-" ? "-" : std::filesystem::path(path).stem().string();
  MINISGL_ASSIGN_OR_RETURN(run.figures, report::ParseRunFigures(json, where));
  if (!run.figures.series) {
    return BadInput("{}: has no time_series; give a file that --summary of run or chat wrote",
                    where);
  }
  return run;
}

Status WriteReport(const std::vector<NamedRun>& runs, const std::string& title,
                   term::Output* output) {
  MINISGL_RETURN_IF_ERROR(output->Begin());
  MINISGL_RETURN_IF_ERROR(output->Write(report::DrawSvg(MakeChart(runs, title))));
  return output->Finish();
}

Result<int> Report(const ReportCommandOptions& options) {
  if (options.files.size() > report::kChartColours) {
    return UsageError("{} files; at most {} runs can be told apart in one picture",
                      options.files.size(), report::kChartColours);
  }
  if (std::count(options.files.begin(), options.files.end(), "-") > 1) {
    return UsageError("standard input can be read once; name the other files");
  }
  if (options.output.empty() && isatty(STDOUT_FILENO) != 0) {
    return UsageError("the SVG is not readable on a terminal; give -o FILE.svg, or use a pipe");
  }
  std::vector<NamedRun> runs;
  for (const std::string& file : options.files) {
    MINISGL_ASSIGN_OR_RETURN(NamedRun run, ReadRun(file));
    runs.push_back(std::move(run));
    std::error_code error;
    if (!options.output.empty() && std::filesystem::equivalent(file, options.output, error)) {
      return MakeStatus(StatusCode::kCannotCreate,
                        "{}: is one of the summaries to draw; choose "
                        "another --output",
                        Visible(file, 400));
    }
  }
  MINISGL_ASSIGN_OR_RETURN(const auto output,
                           term::Output::Open(options.output, options.force, -1));
  return output->ExitAfter(WriteReport(runs, options.title, output.get()));
}

}  // namespace

CommandBody AddReportCommand(load::OptionTable* app) {
  const auto options = std::make_shared<ReportCommandOptions>();
  app->Add("FILE", &options->files, "Summary files of runs; - is standard input")
      ->Required()
      ->TypeName("FILE");
  load::AddOutputOption(app, &options->output, "Write to");
  app->Add("--title", &options->title, "Title (default: the name of the model)")->TypeName("TEXT");
  app->AddFlag("--force", &options->force, "Replace an output file that is not empty");
  return [options] {
    term::InstallNotes({});
    const Result<int> exit_status = Report(*options);
    return exit_status.ok() ? *exit_status : term::Fail(exit_status.status());
  };
}

}  // namespace minisgl::cli
