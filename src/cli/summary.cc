#include "cli/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace minisgl {
namespace {

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double PercentOf(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Every figure of the scheduler with its name: the one list behind --stats and the summary file.
std::vector<std::pair<const char*, int64_t>> SchedulerFigures(const SchedulerStats& stats) {
  return {{"submitted", stats.submitted},
          {"finished", stats.finished},
          {"failed", stats.failed},
          {"aborted", stats.aborted},
          {"steps", stats.steps},
          {"prefill_steps", stats.prefill_steps},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"computed_tokens", stats.computed_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"preemptions", stats.preemptions},
          {"pages_total", stats.pages_total},
          {"pages_free", stats.pages_free},
          {"pages_cached", stats.pages_cached},
          {"pages_locked", stats.pages_locked},
          {"pages_peak", stats.pages_peak},
          {"remapped_pages", stats.remapped_pages},
          {"evicted_pages", stats.evicted_pages}};
}

Json PercentilesJson(const std::vector<double>& values) {
  Json json = Json(Json::Object());
  json.Set("p50", Percentile(values, 50));
  json.Set("p99", Percentile(values, 99));
  return json;
}

}  // namespace

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

std::string FormatSummary(const RunSummary& summary) {
  const SchedulerStats& stats = summary.stats.scheduler;
  const std::vector<double>& first = summary.stats.first_token_s;
  const std::vector<double>& between = summary.stats.between_tokens_s;
  return fmt::format(
      "rows            {} done, {} failed, {:.2f} s\n"
      "prompt tokens   {} ({} from the prefix cache, {:.1f} %; {} computed)\n"
      "answer tokens   {}\n"
      "tokens/s        {:.1f} in, {:.1f} out\n"
      "first token     p50 {:.3f} s, p99 {:.3f} s\n"
      "between tokens  p50 {:.1f} ms, p99 {:.1f} ms\n"
      "preemptions     {}",
      summary.rows_done, summary.rows_failed, summary.seconds, stats.prompt_tokens,
      stats.cached_tokens, PercentOf(stats.cached_tokens, stats.prompt_tokens),
      stats.computed_tokens, stats.generated_tokens,
      PerSecond(stats.prompt_tokens, summary.seconds),
      PerSecond(stats.generated_tokens, summary.seconds), Percentile(first, 50),
      Percentile(first, 99), 1000 * Percentile(between, 50), 1000 * Percentile(between, 99),
      stats.preemptions);
}

Json SummaryJson(const RunSummary& summary) {
  const SchedulerStats& stats = summary.stats.scheduler;
  Json json = Json(Json::Object());
  json.Set("rows_done", summary.rows_done);
  json.Set("rows_failed", summary.rows_failed);
  json.Set("seconds", summary.seconds);
  json.Set("prompt_tokens", stats.prompt_tokens);
  json.Set("cached_tokens", stats.cached_tokens);
  json.Set("computed_tokens", stats.computed_tokens);
  json.Set("completion_tokens", stats.generated_tokens);
  json.Set("prompt_tokens_per_s", PerSecond(stats.prompt_tokens, summary.seconds));
  json.Set("completion_tokens_per_s", PerSecond(stats.generated_tokens, summary.seconds));
  json.Set("first_token_s", PercentilesJson(summary.stats.first_token_s));
  json.Set("between_tokens_s", PercentilesJson(summary.stats.between_tokens_s));
  json.Set("preemptions", stats.preemptions);
  Json scheduler = Json(Json::Object());
  for (const auto& [name, value] : SchedulerFigures(stats)) scheduler.Set(name, value);
  json.Set("scheduler", std::move(scheduler));
  return json;
}

std::string FormatSchedulerStats(const SchedulerStats& stats) {
  std::string text;
  for (const auto& [name, value] : SchedulerFigures(stats)) {
    text += fmt::format("{}{:<17}{}", text.empty() ? "" : "\n", name, value);
  }
  return text;
}

Status WriteSummaryFile(const RunSummary& summary, Output* output) {
  MINISGL_RETURN_IF_ERROR(output->Begin());
  MINISGL_RETURN_IF_ERROR(output->Write(SummaryJson(summary).Dump(2) + "\n"));
  return output->Finish();
}

}  // namespace minisgl
