#include "report/run_estimate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "batch/row_prompt.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"

namespace minisgl::report {
namespace {

// If prompts and answers always came in the same ratio, their costs cannot be separated.
constexpr double kApartMin = 0.02;

// Least-squares fit over the points of the series: finds a (cost of a computed token) and b (cost
// of an answer token), both >= 0, for which a * c + b * g is closest to the time. Leaves both at 0
// if they cannot be separated.
void FitCosts(const term::TimeSeries& series, double* a, double* b) {
  double cc = 0, cg = 0, gg = 0, ct = 0, gt = 0, before = 0;
  for (size_t i = 0; i < series.time_s.size(); ++i) {
    const double seconds = series.time_s[i] - before;
    before = series.time_s[i];
    const double computed = series.computed_tokens_per_s[i] * seconds;
    const double answered = series.completion_tokens_per_s[i] * seconds;
    cc += computed * computed;
    cg += computed * answered;
    gg += answered * answered;
    ct += computed * seconds;
    gt += answered * seconds;
  }
  *a = *b = 0;
  const double determinant = cc * gg - cg * cg;
  if (!(determinant > kApartMin * cc * gg)) return;
  *a = (ct * gg - gt * cg) / determinant;
  *b = (gt * cc - ct * cg) / determinant;
  // At the boundary a = 0, fit b alone; likewise for b.
  if (*a < 0) {
    *a = 0;
    *b = gt / gg;
  } else if (*b < 0) {
    *b = 0;
    *a = ct / cc;
  }
}

Result<RunSpeed> SpeedOfRun(const RunFigures& run, const std::string& where) {
  const auto computed = static_cast<double>(run.computed_tokens);
  const auto answered = static_cast<double>(run.completion_tokens);
  if (!(run.seconds > 0) || computed + answered <= 0) {
    return BadInput("{}: is from a run that took no time or answered nothing; give another", where);
  }
  RunSpeed speed;
  if (run.series) FitCosts(*run.series, &speed.prompt_token_s, &speed.answer_token_s);
  const double fitted = speed.prompt_token_s * computed + speed.answer_token_s * answered;
  if (fitted > 0) {
    // Scale the fitted costs so that they explain the whole time.
    speed.prompt_token_s *= run.seconds / fitted;
    speed.answer_token_s *= run.seconds / fitted;
  } else {
    speed.prompt_token_s = speed.answer_token_s = run.seconds / (computed + answered);
  }
  if (run.rows_done > 0) speed.answer_tokens_mean = answered / static_cast<double>(run.rows_done);
  speed.what = Visible(run.model, 60);
  if (!run.device.empty()) {
    speed.what += fmt::format("{}{}", speed.what.empty() ? "" : ", ", Visible(run.device, 60));
  }
  return speed;
}

Result<RunSpeed> SpeedOfBench(const Json& json, const std::string& where) {
  const Json* workload = json.Find("workload");
  const Json* median = json.Find("median");
  if (workload == nullptr || median == nullptr) {
    return BadInput(
        "{}: is from a benchmark that measures no throughput; give one of nano, uniform "
        "or shared",
        where);
  }
  MINISGL_ASSIGN_OR_RETURN(const int64_t prompts,
                           CountField(*workload, "prompt_tokens", where + ": workload"));
  MINISGL_ASSIGN_OR_RETURN(const int64_t answers,
                           CountField(*workload, "output_tokens", where + ": workload"));
  MINISGL_ASSIGN_OR_RETURN(const double seconds,
                           NumberField(*median, "seconds", where + ": median"));
  if (!(seconds > 0) || prompts + answers <= 0) {
    return BadInput("{}: is from a benchmark that took no time; give another", where);
  }
  RunSpeed speed;
  speed.what = "a benchmark";
  speed.prompt_token_s = speed.answer_token_s = seconds / static_cast<double>(prompts + answers);
  const Json* decoding = json.Find("decoding");
  if (decoding == nullptr || prompts == 0) return speed;
  MINISGL_ASSIGN_OR_RETURN(const double rate,
                           NumberField(*decoding, "tokens_per_s", where + ": decoding"));
  if (!(rate > 0)) return speed;
  // The time not spent on answers is spent on prompts.
  const double answers_s = std::min(static_cast<double>(answers) / rate, seconds);
  speed.answer_token_s = 1 / rate;
  speed.prompt_token_s = (seconds - answers_s) / static_cast<double>(prompts);
  return speed;
}

}  // namespace

Result<RunSpeed> ParseRunSpeed(const Json& json, const std::string& where) {
  if (json.Find("bench") != nullptr) return SpeedOfBench(json, where);
  MINISGL_ASSIGN_OR_RETURN(const RunFigures run, ParseRunFigures(json, where));
  return SpeedOfRun(run, where);
}

RunEstimator::RunEstimator(const EngineLimits& limits, bool keeps_prefixes,
                           const std::optional<RunSpeed>& speed)
    : limits_(limits),
      keeps_prefixes_(keeps_prefixes),
      answer_mean_(speed ? speed->answer_tokens_mean : std::nullopt),
      prefixes_(limits.page_size),
      pool_(limits.page_size, limits.num_pages) {}

int64_t RunEstimator::AnswerRoom(const Prompt& prompt) const {
  const int64_t room = std::max<int64_t>(
      batch::ContextCapacity(limits_) - static_cast<int64_t>(prompt.ids.size()), 1);
  return prompt.max_tokens < 0 ? room : std::min(prompt.max_tokens, room);
}

void RunEstimator::Add(const std::vector<Prompt>& prompts) {
  ++estimate_.rows;
  for (const Prompt& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const int64_t answer = AnswerRoom(prompt);
    ++estimate_.requests;
    estimate_.prompt_tokens += length;
    estimate_.longest_prompt = std::max(estimate_.longest_prompt, length);
    estimate_.answer_tokens_max += answer;
    estimate_.unlimited_requests += prompt.max_tokens < 0 ? 1 : 0;
    answer_tokens_ += std::min(answer_mean_.value_or(0), static_cast<double>(answer));
    prompt_pages_ += length / limits_.page_size;
    // The last token of an answer is never an input of the model.
    longest_pages_ +=
        CeilDiv<int64_t>(length + std::max<int64_t>(answer - 1, 0), limits_.page_size);
    if (!keeps_prefixes_) continue;
    prefixes_.Add({prompt.ids, prompt.marks});
    const double expected = std::min(answer_mean_.value_or(1e15), static_cast<double>(answer));
    pool_.Add({prompt.ids, prompt.marks}, std::llround(expected));
  }
}

void RunEstimator::AddBad() {
  ++estimate_.rows;
  ++estimate_.bad_rows;
}

RunEstimate RunEstimator::Finish() const {
  RunEstimate estimate = estimate_;
  if (answer_mean_) estimate.answer_tokens = std::llround(answer_tokens_);
  estimate.pages_total = limits_.num_pages;
  // Shared pages of prompts are counted once, all others once for each request.
  const int64_t twice =
      keeps_prefixes_ ? std::max<int64_t>(prompt_pages_ - prefixes_.unique_pages(), 0) : 0;
  estimate.pages_needed = longest_pages_ - twice;
  estimate.cached_tokens = std::min(prefixes_.shared_tokens(), estimate.prompt_tokens);
  estimate.cached_tokens_min = estimate.fits()
                                   ? estimate.cached_tokens
                                   : std::min(pool_.found_tokens(), estimate.cached_tokens);
  estimate.computed_tokens = estimate.prompt_tokens - estimate.cached_tokens;
  estimate.counted_exactly = prefixes_.is_exact();
  estimate.at_once = std::min<int64_t>(estimate.requests, limits_.max_running_requests);
  if (estimate.fits() || estimate.requests == 0) return estimate;
  // Either all shared pages stay in the pool, or nothing is shared: take what admits more requests.
  const int64_t shared = std::min(prefixes_.shared_pages(), estimate.pages_total);
  const auto requests = static_cast<double>(estimate.requests);
  const double own = static_cast<double>(estimate.pages_needed - shared) / requests;
  const double alone = static_cast<double>(longest_pages_) / requests;
  const double room =
      std::max(static_cast<double>(estimate.pages_total - shared) / std::max(own, 1e-9),
               static_cast<double>(estimate.pages_total) / std::max(alone, 1e-9));
  estimate.at_once =
      std::clamp<int64_t>(static_cast<int64_t>(std::min(room, 1e15)), 1, estimate.at_once);
  return estimate;
}

EstimatedTime TimeOf(const RunEstimate& estimate, const RunSpeed& speed) {
  const int64_t answers = estimate.answer_tokens.value_or(estimate.answer_tokens_max);
  return {static_cast<double>(estimate.computed_tokens) * speed.prompt_token_s,
          static_cast<double>(answers) * speed.answer_token_s};
}

}  // namespace minisgl::report
