// minisgl report: draws runs from their summary files, one SVG: throughput, batch size and cache
// hits over time. Loads no model.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_figures.h"
#include "cli/svg_chart.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// More points than this in the width of a picture are noise.
constexpr size_t kChartPointsMax = 120;

struct ReportCommandOptions {
  std::vector<std::string> files;
  std::string output;
  std::string title;
  bool force = false;
};

struct NamedRun {
  std::string name;  // of its file
  RunFigures figures;
};

using Values = std::vector<double> TimeSeries::*;

// The values of `column` by time, at most kChartPointsMax of them, as means over time. Where
// `counted` names a column, a time in which that is 0 says nothing and is left out.
std::vector<std::pair<double, double>> Points(const TimeSeries& series, Values column,
                                              Values counted = nullptr, double factor = 1) {
  const size_t count = series.time_s.size();
  const size_t group = (count + kChartPointsMax - 1) / kChartPointsMax;
  std::vector<std::pair<double, double>> points;
  double before = 0;
  for (size_t begin = 0; begin < count; begin += group) {
    const size_t end = std::min(begin + group, count);
    double sum = 0, seconds = 0;
    for (size_t i = begin; i < end; ++i) {
      const double length = series.time_s[i] - before;
      before = series.time_s[i];
      if (counted != nullptr && (series.*counted)[i] == 0) continue;
      sum += length * (series.*column)[i];
      seconds += length;
    }
    if (seconds > 0) points.emplace_back(before, factor * sum / seconds);
  }
  return points;
}

bool AnyAbove0(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return value > 0; });
}

std::vector<ChartPanel> PanelsOfOne(const RunFigures& run) {
  const TimeSeries& series = *run.series;
  const auto points = [&series](Values column, Values counted = nullptr, double factor = 1) {
    return Points(series, column, counted, factor);
  };
  std::vector<ChartPanel> panels = {
      {"Answers", "tokens/s", {{"out", 0, points(&TimeSeries::completion_tokens_per_s)}}, {}},
      {"Prompts",
       "tokens/s",
       {{"asked", 5, points(&TimeSeries::prompt_tokens_per_s)},
        {"computed", 1, points(&TimeSeries::computed_tokens_per_s)}},
       {}},
      {"Batch",
       "rows",
       {{"running", 5, points(&TimeSeries::running)},
        {"in a step", 2, points(&TimeSeries::batch_size, &TimeSeries::batch_size)}},
       {}},
      {"Cache",
       "%",
       {{"hits", 3, points(&TimeSeries::cache_hit_percent, &TimeSeries::prompt_tokens_per_s)}},
       100}};
  if (run.pages_total.value_or(0) > 0) {
    const double percent = 100 / static_cast<double>(*run.pages_total);
    panels.back().series.push_back(
        {"pages in use", 5, points(&TimeSeries::pages_used, nullptr, percent)});
  }
  if (AnyAbove0(series.waiting)) {
    panels.push_back({"Queue", "requests", {{"waiting", 4, points(&TimeSeries::waiting)}}, {}});
  }
  return panels;
}

std::vector<ChartPanel> PanelsOfSeveral(const std::vector<NamedRun>& runs) {
  const struct {
    const char* title;
    const char* unit;
    Values column, counted;
    std::optional<double> top;
  } kinds[] = {
      {"Answers", "tokens/s", &TimeSeries::completion_tokens_per_s, nullptr, {}},
      {"Prompts computed", "tokens/s", &TimeSeries::computed_tokens_per_s, nullptr, {}},
      {"Rows in a step", "rows", &TimeSeries::batch_size, &TimeSeries::batch_size, {}},
      {"Cache hits", "%", &TimeSeries::cache_hit_percent, &TimeSeries::prompt_tokens_per_s, 100}};
  std::vector<ChartPanel> panels;
  for (const auto& kind : kinds) {
    ChartPanel panel = {kind.title, kind.unit, {}, kind.top};
    for (size_t i = 0; i < runs.size(); ++i) {
      panel.series.push_back({fmt::format("{}", i + 1), static_cast<int>(i),
                              Points(*runs[i].figures.series, kind.column, kind.counted)});
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

double PerSecond(int64_t count, const RunFigures& run) {
  return run.seconds > 0 ? static_cast<double>(count) / run.seconds : 0;
}

std::string Totals(const RunFigures& run) {
  std::string text = fmt::format(
      "{} rows in {}", FormatCount(run.rows_done + run.rows_failed),
      run.seconds < 60 ? fmt::format("{:.1f} s", run.seconds) : FormatDuration(run.seconds));
  if (run.rows_failed > 0) text += fmt::format(", {} failed", FormatCount(run.rows_failed));
  text += fmt::format(": {} tokens/s out, {} in", TickLabel(PerSecond(run.completion_tokens, run)),
                      TickLabel(PerSecond(run.prompt_tokens, run)));
  if (run.prompt_tokens > 0) {
    text += fmt::format(
        "; {:.1f} % of {} prompt tokens cached",
        100 * static_cast<double>(run.cached_tokens) / static_cast<double>(run.prompt_tokens),
        TickLabel(static_cast<double>(run.prompt_tokens)));
  }
  if (run.preemptions > 0) text += fmt::format("; {} preemptions", FormatCount(run.preemptions));
  return text;
}

std::string Settings(const RunFigures& run) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  };
  add(Visible(run.device, 60));
  add(Visible(run.weights, 20));
  if (run.max_running_requests) add(fmt::format("{} requests at once", *run.max_running_requests));
  if (run.pages_total && run.page_size) {
    add(fmt::format("{} pages of {} tokens", FormatCount(*run.pages_total), *run.page_size));
  }
  if (!run.version.empty()) add("minisgl " + Visible(run.version, 20));
  return text;
}

std::string ModelOf(const RunFigures& run) {
  return run.model.empty() ? "a run" : Visible(run.model, 60);
}

Chart MakeChart(const std::vector<NamedRun>& runs, const std::string& title) {
  Chart chart;
  const RunFigures& first = runs.front().figures;
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
  for (const NamedRun& run : runs) {
    const std::vector<double>& times = run.figures.series->time_s;
    chart.seconds =
        std::max({chart.seconds, run.figures.seconds, times.empty() ? 0 : times.back()});
  }
  return chart;
}

Result<NamedRun> ReadRun(const std::string& path) {
  const std::string where = path == "-" ? "standard input" : Visible(path, 400);
  MINISGL_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  NamedRun run;
  run.name = path == "-" ? "-" : std::filesystem::path(path).stem().string();
  MINISGL_ASSIGN_OR_RETURN(run.figures, ParseRunFigures(json, where));
  if (!run.figures.series) {
    return BadInput("{}: has no time_series; give a file that --summary of run or chat wrote",
                    where);
  }
  return run;
}

Status WriteReport(const std::vector<NamedRun>& runs, const std::string& title, Output* output) {
  MINISGL_RETURN_IF_ERROR(output->Begin());
  MINISGL_RETURN_IF_ERROR(output->Write(DrawSvg(MakeChart(runs, title))));
  return output->Finish();
}

Result<int> Report(const ReportCommandOptions& options) {
  if (options.files.size() > kChartColours) {
    return UsageError("{} files; at most {} runs can be told apart in one picture",
                      options.files.size(), kChartColours);
  }
  if (std::count(options.files.begin(), options.files.end(), "-") > 1) {
    return UsageError("standard input can be read once; name the other files");
  }
  if (options.output.empty() && isatty(STDOUT_FILENO) != 0) {
    return UsageError("the picture is no text for a terminal; give -o FILE.svg, or a pipe");
  }
  std::vector<NamedRun> runs;
  for (const std::string& file : options.files) {
    MINISGL_ASSIGN_OR_RETURN(NamedRun run, ReadRun(file));
    runs.push_back(std::move(run));
    std::error_code error;
    if (!options.output.empty() && std::filesystem::equivalent(file, options.output, error)) {
      return MakeStatus(StatusCode::kCannotCreate,
                        "{}: is the summary that is to be drawn; choose "
                        "another --output",
                        Visible(file, 400));
    }
  }
  MINISGL_ASSIGN_OR_RETURN(const auto output, Output::Open(options.output, options.force, -1));
  return output->ExitAfter(WriteReport(runs, options.title, output.get()));
}

}  // namespace

CommandBody AddReportCommand(OptionTable* app) {
  const auto options = std::make_shared<ReportCommandOptions>();
  app->Add("FILE", &options->files, "Summary files of runs; - is standard input")
      ->Required()
      ->TypeName("");
  AddOutputOption(app, &options->output, "Write to");
  app->Add("--title", &options->title, "The title (default: the model's name)")->TypeName("TEXT");
  app->AddFlag("--force", &options->force, "Replace an output file that is not empty");
  return [options] {
    InstallNotes({});
    const Result<int> exit_status = Report(*options);
    return exit_status.ok() ? *exit_status : Fail(exit_status.status());
  };
}

}  // namespace minisgl
