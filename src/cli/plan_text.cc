// See plan_text.h.
#include "cli/plan_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "minisgl/base/utf8.h"
#include "term/progress.h"
#include "term/wrapped_text.h"

namespace minisgl::cli {
namespace {

uint64_t PageBytes(const MemoryPlan& plan) {
  const auto pages = static_cast<uint64_t>(std::max(plan.limits.num_pages, 1));
  return plan.kv_bytes / pages;
}

std::string Bytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes < 100 ? 1 : 0, unit);
}

std::string Seconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : term::FormatDuration(seconds);
}

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Explains why the number of shared tokens may be inexact; "" if it is exact.
std::string Doubt(const report::RunEstimate& estimate, const PlanSubject& subject) {
  if (!subject.keeps_prefixes) return "--cache naive keeps no prefix";
  if (subject.answers_missing) return "prompts of sessions lack the earlier answers";
  if (subject.facts.engine.plan.limits.num_window_pages > 0) {
    return "at most: layers with a window free old pages";
  }
  if (!estimate.fits()) {
    return fmt::format("the pool is too small for all: down to {:.1f} %, as rows are ordered",
                       Percent(estimate.cached_tokens_min, estimate.prompt_tokens));
  }
  return estimate.counted_exactly ? "" : "estimated from a sample of the pages";
}

void PlanLine(const char* name, const std::string& value, std::string* out) {
  *out += fmt::format("{:<12}{}\n", name, value);
}

void DescribeShared(const report::RunEstimate& estimate, const PlanSubject& subject,
                    std::string* out) {
  const std::string doubt = Doubt(estimate, subject);
  PlanLine(
      "shared",
      fmt::format("{} tokens ({:.1f} %) stand in a prefix that another row has; {} to compute{}",
                  term::FormatCount(estimate.cached_tokens),
                  Percent(estimate.cached_tokens, estimate.prompt_tokens),
                  term::FormatCount(estimate.computed_tokens),
                  doubt.empty() ? "" : fmt::format(" ({})", doubt)),
      out);
}

void DescribeAnswers(const report::RunEstimate& estimate, std::string* out) {
  std::string answers;
  if (estimate.answer_tokens) {
    answers = fmt::format("about {} tokens, going by the earlier run; at most {}",
                          term::FormatCount(*estimate.answer_tokens),
                          term::FormatCount(estimate.answer_tokens_max));
  } else {
    answers = fmt::format("at most {} tokens", term::FormatCount(estimate.answer_tokens_max));
  }
  if (estimate.unlimited_requests > 0) {
    answers += fmt::format("; {} of {} may go on to the end of the context (no max_tokens)",
                           term::FormatCount(estimate.unlimited_requests),
                           term::FormatCount(estimate.requests));
  }
  PlanLine("answers", answers, out);
}

void DescribeTime(const report::RunEstimate& estimate, const PlanSubject& subject,
                  std::string* out) {
  if (!subject.speed) {
    PlanLine("time",
             "unknown: --from takes the summary of an earlier run, or the JSON of a benchmark",
             out);
    return;
  }
  const report::EstimatedTime time = report::TimeOf(estimate, *subject.speed);
  const char* how = estimate.answer_tokens ? "about" : "at most about";
  std::string text = fmt::format("about {}", Seconds(time.prompts_s));
  if (!subject.of_texts) {
    text = fmt::format("{} {}: {} for prompts, {} for answers", how, Seconds(time.total_s()),
                       Seconds(time.prompts_s), Seconds(time.answers_s));
  }
  if (!subject.speed->what.empty()) text += fmt::format(" (as fast as {})", subject.speed->what);
  PlanLine("time", text, out);
}

}  // namespace

std::string PlanText(const report::RunEstimate& estimate, const PlanSubject& subject) {
  std::string out;
  std::string rows = fmt::format("{}, {} bad", term::FormatCount(estimate.rows),
                                 term::FormatCount(estimate.bad_rows));
  if (estimate.requests != estimate.rows - estimate.bad_rows) {
    rows += fmt::format("; {} {}", term::FormatCount(estimate.requests),
                        subject.of_texts ? "texts" : "answers");
  }
  PlanLine("rows", rows, &out);
  if (estimate.requests == 0) return out;
  PlanLine(subject.of_texts ? "texts" : "prompts",
           fmt::format("{} tokens (mean {}, longest {})", term::FormatCount(estimate.prompt_tokens),
                       term::FormatCount(estimate.prompt_tokens / estimate.requests),
                       term::FormatCount(estimate.longest_prompt)),
           &out);
  if (!subject.of_texts || subject.keeps_prefixes) DescribeShared(estimate, subject, &out);
  if (!subject.of_texts) DescribeAnswers(estimate, &out);
  const MemoryPlan& memory = subject.facts.engine.plan;
  const auto page_bytes = static_cast<double>(PageBytes(memory));
  PlanLine("KV cache",
           fmt::format(
               "{} for all rows at their longest; the pool has {} ({} pages of {} tokens{})",
               Bytes(static_cast<double>(estimate.pages_needed) * page_bytes),
               Bytes(static_cast<double>(memory.kv_bytes)), term::FormatCount(estimate.pages_total),
               memory.limits.page_size, memory.kv_kind == KvKind::kFp8 ? ", fp8" : ""),
           &out);
  const bool by_memory =
      estimate.at_once < std::min<int64_t>(estimate.requests, memory.limits.max_running_requests);
  std::string why = "all of them";
  if (estimate.at_once < estimate.requests) why = "--max-running-requests";
  if (by_memory) why = "at their longest; more start, and are preempted if need be";
  PlanLine("at once",
           fmt::format("{} request{} ({})", term::FormatCount(estimate.at_once),
                       estimate.at_once == 1 ? "" : "s", why),
           &out);
  for (const load::ModelLine& line : load::ModelLines(subject.facts.engine)) {
    PlanLine(line.role.c_str(), line.text, &out);
  }
  const std::string ranks = load::RanksText(subject.facts.engine);
  if (!ranks.empty()) PlanLine("ranks", ranks, &out);
  DescribeTime(estimate, subject, &out);
  return out;
}

Json PlanJson(const report::RunEstimate& estimate, const PlanSubject& subject) {
  const MemoryPlan& memory = subject.facts.engine.plan;
  Json json = Json(Json::Object());
  json.Set("file", ReplaceInvalidUtf8(subject.file));
  json.Set("rows", estimate.rows)
      .Set("bad_rows", estimate.bad_rows)
      .Set("requests", estimate.requests);
  json.Set("prompt_tokens", estimate.prompt_tokens).Set("longest_prompt", estimate.longest_prompt);
  json.Set("cached_tokens", estimate.cached_tokens)
      .Set("computed_tokens", estimate.computed_tokens);
  json.Set("cached_tokens_min", estimate.cached_tokens_min);
  json.Set("cache_hit_percent", Percent(estimate.cached_tokens, estimate.prompt_tokens));
  json.Set("exact", Doubt(estimate, subject).empty() || !subject.keeps_prefixes);
  json.Set("completion_tokens_max", estimate.answer_tokens_max);
  json.Set("unlimited_requests", estimate.unlimited_requests);
  json.Set("completion_tokens", estimate.answer_tokens ? Json(*estimate.answer_tokens) : Json());
  json.Set("pages_needed", estimate.pages_needed).Set("pages_total", estimate.pages_total);
  json.Set("page_size", memory.limits.page_size);
  json.Set("page_bytes", PageBytes(memory)).Set("kv_bytes", memory.kv_bytes);
  json.Set("kv_dtype", memory.kv_kind == KvKind::kFp8 ? "fp8" : "auto");
  json.Set("weight_bytes", memory.weight_bytes).Set("state_bytes", memory.state_bytes);
  json.Set("cpu_expert_layers", memory.num_host_layers);
  json.Set("cpu_expert_bytes", memory.host_weight_bytes);
  json.Set("requests_at_once", estimate.at_once);
  if (!subject.speed) return json.Set("seconds", Json());
  const report::EstimatedTime time = report::TimeOf(estimate, *subject.speed);
  json.Set("seconds", time.total_s());
  json.Set("prompt_seconds", time.prompts_s).Set("answer_seconds", time.answers_s);
  return json;
}

}  // namespace minisgl::cli
