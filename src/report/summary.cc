#include "report/summary.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "term/progress.h"
#include "term/run_history.h"

namespace minisgl::report {
namespace {

double PercentOf(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// All figures of the scheduler with their names: the single list for --stats and the summary file.
std::vector<std::pair<const char*, int64_t>> SchedulerFigures(const SchedulerStats& stats) {
  return {{"submitted", stats.submitted},
          {"finished", stats.finished},
          {"failed", stats.failed},
          {"aborted", stats.aborted},
          {"steps", stats.steps},
          {"prefill_steps", stats.prefill_steps},
          {"step_rows", stats.step_rows},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"computed_tokens", stats.computed_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"scored_tokens", stats.scored_tokens},
          {"preemptions", stats.preemptions},
          {"pages_total", stats.pages_total},
          {"pages_free", stats.pages_free},
          {"pages_cached", stats.pages_cached},
          {"pages_locked", stats.pages_locked},
          {"pages_peak", stats.pages_peak},
          {"window_pages_total", stats.window_pages_total},
          {"window_pages_free", stats.window_pages_free},
          {"reclaimed_window_pages", stats.reclaimed_window_pages},
          {"state_slots_total", stats.state_slots_total},
          {"state_slots_free", stats.state_slots_free},
          {"snapshots", stats.snapshots},
          {"evicted_snapshots", stats.evicted_snapshots},
          {"remapped_pages", stats.remapped_pages},
          {"evicted_pages", stats.evicted_pages},
          {"recomputed_tokens", stats.recomputed_tokens},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_drafts", stats.accepted_drafts},
          {"loaded_tokens", stats.loaded_tokens},
          {"loaded_states", stats.loaded_states},
          {"failed_loads", stats.failed_loads},
          {"saved_pages", stats.saved_pages},
          {"dropped_pages", stats.dropped_pages},
          {"saved_states", stats.saved_states},
          {"encoded_images", stats.encoded_inputs},
          {"reused_images", stats.reused_inputs},
          {"sessions", stats.sessions},
          {"session_pages", stats.session_pages}};
}

double HitPercent(const SchedulerStats& stats) {
  return PercentOf(stats.cached_tokens, stats.prompt_tokens);
}

double AcceptancePercent(const SchedulerStats& stats) {
  return PercentOf(stats.accepted_drafts, stats.drafted_tokens);
}

// Returns how many of the first drafts of all rows were right, of the second ones, and so on, in
// percent.
std::vector<double> AcceptanceByPlace(const SchedulerStats& stats) {
  std::vector<double> percents;
  for (size_t i = 0; i < kDraftPlaces && stats.drafted_at[i] > 0; ++i) {
    percents.push_back(PercentOf(stats.accepted_at[i], stats.drafted_at[i]));
  }
  return percents;
}

// Tokens of an answer that a step gives on average.
double TokensPerStep(const SchedulerStats& stats) {
  return stats.answer_rows == 0
             ? 0
             : static_cast<double>(stats.generated_tokens) / static_cast<double>(stats.answer_rows);
}

// Peak resident memory of the process, as the kernel counts it.
int64_t PeakMemoryBytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return int64_t{usage.ru_maxrss} * 1024;
}

// Name of a model for display, from its directory.
std::string ModelName(const std::string& dir) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(dir, error);
  const std::string name = path.filename().string();
  // In a hub cache, the directory is a hash, and the parent of "snapshots" has the model's name.
  const std::filesystem::path parent = path.parent_path();
  if (parent.filename() == "snapshots") return parent.parent_path().filename().string();
  return name.empty() ? dir : name;
}

struct Spread {
  const char* name;  // in the summary file
  const char* said;  // for --stats
  const Histogram& seconds;
};

// Percentiles of times with their names: the single list for --stats and the summary file.
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

// Counts only answered rows: failed ones and those that were not asked took almost no time.
double RequestsPerSecond(const RunSummary& summary) {
  return term::PerSecond(summary.rows_done, summary.seconds);
}

// "4,520 done, 44 failed, 15,436 not answered"
std::string RowCounts(const RunSummary& summary) {
  const int64_t cancelled = summary.failures ? summary.failures->cancelled() : 0;
  std::string text = fmt::format("{} done, {} failed", term::FormatCount(summary.rows_done),
                                 term::FormatCount(summary.rows_failed - cancelled));
  if (cancelled > 0) text += fmt::format(", {} not answered", term::FormatCount(cancelled));
  return text;
}

// " (820 of them reasoning; 2 answers ended within their reasoning)"
std::string ReasoningText(const RunSummary& summary) {
  if (summary.reasoning_tokens + summary.answers_in_thought == 0) return "";
  std::string text =
      fmt::format(" ({} of them reasoning", term::FormatCount(summary.reasoning_tokens));
  if (summary.answers_in_thought == 1) text += "; 1 answer ended within its reasoning";
  if (summary.answers_in_thought > 1) {
    text += fmt::format("; {} answers ended within their reasoning",
                        term::FormatCount(summary.answers_in_thought));
  }
  return text + ")";
}

// "4,400 stop, 120 length"
std::string FinishReasons(const RunSummary& summary) {
  std::string text;
  for (const char* reason : {"stop", "tool_calls", "length", "timeout"}) {
    const auto found = summary.finish_reasons.find(reason);
    if (found == summary.finish_reasons.end()) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", term::FormatCount(found->second), reason);
  }
  return text;
}

}  // namespace

Json AboutRun(const load::LoadedModel& model, const load::EngineOptions& options) {
  const EngineLimits& limits = model.runtime->limits();
  Json settings = Json(Json::Object());
  settings.Set("max_running_requests", limits.max_running_requests);
  settings.Set("max_prefill_length", limits.max_step_tokens - limits.max_running_requests);
  settings.Set("max_seq_len", limits.max_seq_len);
  settings.Set("num_pages", limits.num_pages);
  settings.Set("page_size", limits.page_size);
  settings.Set("cache", load::ChoiceName(load::kCacheChoices, options.cache));
  settings.Set("schedule", load::ChoiceName(load::kScheduleChoices, options.schedule));
  settings.Set("admission", load::ChoiceName(load::kAdmissionChoices, options.admission));
  settings.Set("policy", load::ChoiceName(load::kPolicyChoices, options.policy));
  settings.Set("overlap", !options.disable_overlap);
  settings.Set("max_drafts", options.drafts.max_drafts);
  settings.Set("deterministic", options.deterministic);
  settings.Set("tensor_parallel", options.tensor_parallel);
  settings.Set("all_reduce", load::ChoiceName(load::kAllReduceChoices, options.all_reduce));
  Json about = Json(Json::Object());
  about.Set("version", MINISGL_VERSION);
  about.Set("model", ReplaceInvalidUtf8(ModelName(model.text.dir)));
  about.Set("device", model.device);
  about.Set("weights", model.facts.engine.plan.weight_format.Name());
  about.Set("options", std::move(settings));
  return about;
}

std::string FormatSummary(const RunSummary& summary) {
  const RuntimeStats& all = summary.stats;
  const SchedulerStats& stats = all.scheduler;
  std::string text =
      fmt::format("rows            {}, {:.2f} s", RowCounts(summary), summary.seconds);
  if (summary.scores) text += "\nscored tokens   " + summary.scores->Text();
  // Omit rates if nothing was submitted: they would be misleading.
  if (stats.submitted == 0) return text;
  // A run that scores generates no token.
  const bool scores = summary.scores.has_value();
  const bool has_answers = !scores && !summary.of_texts;
  text +=
      fmt::format("\nprompt tokens   {} ({} from the prefix cache, {:.1f} %; {} computed)\n",
                  term::FormatCount(stats.prompt_tokens), term::FormatCount(stats.cached_tokens),
                  HitPercent(stats), term::FormatCount(stats.computed_tokens));
  if (stats.encoded_inputs + stats.reused_inputs > 0) {
    text += fmt::format("images          {} encoded, {} found encoded\n",
                        term::FormatCount(stats.encoded_inputs),
                        term::FormatCount(stats.reused_inputs));
  }
  if (has_answers) {
    text += fmt::format("answer tokens   {}{}\n", term::FormatCount(stats.generated_tokens),
                        ReasoningText(summary));
  }
  if (!summary.finish_reasons.empty()) {
    text += fmt::format("finish reasons  {}\n", FinishReasons(summary));
  }
  const int64_t results = scores ? stats.scored_tokens : stats.generated_tokens;
  text += fmt::format("tokens/s        {} in",
                      term::FormatRate(term::PerSecond(stats.prompt_tokens, summary.seconds)));
  if (!summary.of_texts) {
    text += fmt::format(", {} {}", term::FormatRate(term::PerSecond(results, summary.seconds)),
                        scores ? "scored" : "out");
  }
  text += fmt::format(
      "; {:.2f} requests/s\n"
      "waiting         p50 {:.3f} s, p99 {:.3f} s (rows are submitted before there is room for "
      "them)\n",
      RequestsPerSecond(summary), all.waiting_s.Percentile(50), all.waiting_s.Percentile(99));
  if (has_answers) {
    text += fmt::format(
        "first token     p50 {:.3f} s, p99 {:.3f} s (including waiting)\n"
        "between tokens  p50 {:.1f} ms, p99 {:.1f} ms\n",
        all.first_token_s.Percentile(50), all.first_token_s.Percentile(99),
        1000 * all.between_tokens_s.Percentile(50), 1000 * all.between_tokens_s.Percentile(99));
  }
  return text + fmt::format("preemptions     {}", stats.preemptions);
}

Json SummaryJson(const RunSummary& summary) {
  const SchedulerStats& stats = summary.stats.scheduler;
  Json json = Json(Json::Object());
  if (summary.about.is_object()) json = summary.about;
  json.Set("rows_done", summary.rows_done);
  json.Set("rows_failed", summary.rows_failed);
  if (summary.failures) {
    json.Set("rows_cancelled", summary.failures->cancelled());
    json.Set("failures", summary.failures->ToJson());
  }
  if (summary.scores) json.Set("scores", summary.scores->ToJson());
  if (!summary.finish_reasons.empty()) {
    Json reasons = Json(Json::Object());
    for (const auto& [reason, count] : summary.finish_reasons) reasons.Set(reason, count);
    json.Set("finish_reasons", std::move(reasons));
  }
  json.Set("seconds", summary.seconds);
  json.Set("prompt_tokens", stats.prompt_tokens);
  json.Set("cached_tokens", stats.cached_tokens);
  json.Set("cache_hit_percent", HitPercent(stats));
  json.Set("computed_tokens", stats.computed_tokens);
  json.Set("completion_tokens", stats.generated_tokens);
  json.Set("reasoning_tokens", summary.reasoning_tokens);
  json.Set("answers_ended_in_reasoning", summary.answers_in_thought);
  json.Set("prompt_tokens_per_s", term::PerSecond(stats.prompt_tokens, summary.seconds));
  json.Set("completion_tokens_per_s", term::PerSecond(stats.generated_tokens, summary.seconds));
  json.Set("total_tokens_per_s",
           term::PerSecond(stats.prompt_tokens + stats.generated_tokens, summary.seconds));
  json.Set("requests_per_s", RequestsPerSecond(summary));
  for (const Spread& spread : Spreads(summary.stats)) {
    json.Set(spread.name, PercentilesJson(spread.seconds));
  }
  json.Set("preemptions", stats.preemptions);
  json.Set("recomputed_tokens", stats.recomputed_tokens);
  if (stats.drafted_tokens > 0) {
    json.Set("draft_acceptance_percent", AcceptancePercent(stats));
    Json::Array places;
    for (const double percent : AcceptanceByPlace(stats)) places.emplace_back(percent);
    json.Set("draft_acceptance_by_place", std::move(places));
    json.Set("tokens_per_step", TokensPerStep(stats));
  }
  json.Set("peak_memory_bytes", PeakMemoryBytes());
  Json scheduler = Json(Json::Object());
  for (const auto& [name, value] : SchedulerFigures(stats)) scheduler.Set(name, value);
  json.Set("scheduler", std::move(scheduler));
  return json;
}

// Writes each column of the series on one line; one number a line would give thousands of lines.
std::string SummaryText(const RunSummary& summary) {
  std::string text = SummaryJson(summary).Dump(2);
  if (!summary.time_series.is_object()) return text + "\n";
  text.resize(text.size() - 2);  // remove "\n}"
  text += ",\n  \"time_series\": {";
  const char* before = "\n";
  for (const auto& [name, values] : summary.time_series.as_object()) {
    text += fmt::format("{}    \"{}\": {}", std::exchange(before, ",\n"), name, values.Dump());
  }
  return text + "\n  }\n}\n";
}

std::string AcceptanceText(const SchedulerStats& stats) {
  std::string text = fmt::format("{:.1f} %", AcceptancePercent(stats));
  const char* before = ", by place ";
  for (const double percent : AcceptanceByPlace(stats)) {
    text += fmt::format("{}{:.0f} %", std::exchange(before, ", "), percent);
  }
  if (stats.answer_rows > 0) text += fmt::format("; {:.2f} tokens a step", TokensPerStep(stats));
  return text;
}

std::string FormatStats(const RuntimeStats& stats) {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{}{:<17} {}", text.empty() ? "" : "\n", name, value);
  };
  for (const auto& [name, value] : SchedulerFigures(stats.scheduler)) {
    line(name, fmt::format("{}", value));
  }
  line("hit_rate", fmt::format("{:.1f} %", HitPercent(stats.scheduler)));
  if (stats.scheduler.drafted_tokens > 0) {
    line("draft_acceptance", AcceptanceText(stats.scheduler));
  }
  for (const Spread& spread : Spreads(stats)) {
    line(spread.said,
         fmt::format("p50 {:.3f} ms, p99 {:.3f} ms, max {:.3f} ms",
                     1000 * spread.seconds.Percentile(50), 1000 * spread.seconds.Percentile(99),
                     1000 * spread.seconds.max()));
  }
  return text;
}

Status WriteSummaryFile(const RunSummary& summary, term::Output* output) {
  MINISGL_RETURN_IF_ERROR(output->Begin());
  MINISGL_RETURN_IF_ERROR(output->Write(SummaryText(summary)));
  return output->Finish();
}

}  // namespace minisgl::report
