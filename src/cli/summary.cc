#include "cli/summary.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

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
          {"evicted_pages", stats.evicted_pages},
          {"recomputed_tokens", stats.recomputed_tokens},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_drafts", stats.accepted_drafts},
          {"loaded_tokens", stats.loaded_tokens},
          {"failed_loads", stats.failed_loads},
          {"sessions", stats.sessions},
          {"session_pages", stats.session_pages}};
}

double HitPercent(const SchedulerStats& stats) {
  return PercentOf(stats.cached_tokens, stats.prompt_tokens);
}

double AcceptancePercent(const SchedulerStats& stats) {
  return PercentOf(stats.accepted_drafts, stats.drafted_tokens);
}

struct Spread {
  const char* name;  // in the summary file
  const char* said;  // by --stats
  const Histogram& seconds;
};

// How times are spread, by their names: likewise the one list.
std::vector<Spread> Spreads(const RuntimeStats& stats) {
  return {{"waiting_s", "waiting", stats.waiting_s},
          {"first_token_s", "first_token", stats.first_token_s},
          {"between_tokens_s", "between_tokens", stats.between_tokens_s},
          {"host_step_s", "host_step", stats.host_step_s}};
}

Json PercentilesJson(const Histogram& values) {
  Json json = Json(Json::Object());
  json.Set("p50", values.Percentile(50));
  json.Set("p99", values.Percentile(99));
  json.Set("max", values.max());
  return json;
}

}  // namespace

std::string FormatSummary(const RunSummary& summary) {
  const SchedulerStats& stats = summary.stats.scheduler;
  const Histogram& first = summary.stats.first_token_s;
  const Histogram& between = summary.stats.between_tokens_s;
  return fmt::format(
      "rows            {} done, {} failed, {:.2f} s\n"
      "prompt tokens   {} ({} from the prefix cache, {:.1f} %; {} computed)\n"
      "answer tokens   {}\n"
      "tokens/s        {:.1f} in, {:.1f} out\n"
      "first token     p50 {:.3f} s, p99 {:.3f} s\n"
      "between tokens  p50 {:.1f} ms, p99 {:.1f} ms\n"
      "preemptions     {}",
      summary.rows_done, summary.rows_failed, summary.seconds, stats.prompt_tokens,
      stats.cached_tokens, HitPercent(stats), stats.computed_tokens, stats.generated_tokens,
      PerSecond(stats.prompt_tokens, summary.seconds),
      PerSecond(stats.generated_tokens, summary.seconds), first.Percentile(50),
      first.Percentile(99), 1000 * between.Percentile(50), 1000 * between.Percentile(99),
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
  json.Set("cache_hit_percent", HitPercent(stats));
  json.Set("computed_tokens", stats.computed_tokens);
  json.Set("completion_tokens", stats.generated_tokens);
  json.Set("prompt_tokens_per_s", PerSecond(stats.prompt_tokens, summary.seconds));
  json.Set("completion_tokens_per_s", PerSecond(stats.generated_tokens, summary.seconds));
  for (const Spread& spread : Spreads(summary.stats)) {
    json.Set(spread.name, PercentilesJson(spread.seconds));
  }
  json.Set("preemptions", stats.preemptions);
  json.Set("recomputed_tokens", stats.recomputed_tokens);
  if (stats.drafted_tokens > 0) json.Set("draft_acceptance_percent", AcceptancePercent(stats));
  Json scheduler = Json(Json::Object());
  for (const auto& [name, value] : SchedulerFigures(stats)) scheduler.Set(name, value);
  json.Set("scheduler", std::move(scheduler));
  return json;
}

std::string FormatStats(const RuntimeStats& stats) {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{}{:<18}{}", text.empty() ? "" : "\n", name, value);
  };
  for (const auto& [name, value] : SchedulerFigures(stats.scheduler)) {
    line(name, fmt::format("{}", value));
  }
  line("hit_rate", fmt::format("{:.1f} %", HitPercent(stats.scheduler)));
  if (stats.scheduler.drafted_tokens > 0) {
    line("draft_acceptance", fmt::format("{:.1f} %", AcceptancePercent(stats.scheduler)));
  }
  for (const Spread& spread : Spreads(stats)) {
    line(spread.said,
         fmt::format("p50 {:.3f} ms, p99 {:.3f} ms, max {:.3f} ms",
                     1000 * spread.seconds.Percentile(50), 1000 * spread.seconds.Percentile(99),
                     1000 * spread.seconds.max()));
  }
  return text;
}

Status WriteSummaryFile(const RunSummary& summary, Output* output) {
  MINISGL_RETURN_IF_ERROR(output->Begin());
  MINISGL_RETURN_IF_ERROR(output->Write(SummaryJson(summary).Dump(2) + "\n"));
  return output->Finish();
}

}  // namespace minisgl
