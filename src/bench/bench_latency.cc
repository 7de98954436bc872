// Benchmarks of single prompts and small batches: time between tokens, time to the first token, and
// the effect of drafts.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "bench/bench_model.h"
#include "load/prefix_cache.h"
#include "minisgl/base/histogram.h"
#include "minisgl/base/utf8.h"

namespace minisgl::bench {
namespace {

constexpr int32_t kSinglePrompt = 128, kSingleOutput = 512;
constexpr int32_t kGpuPrefix = 8192, kCpuPrefix = 1024;
constexpr int32_t kSpecPrompt = 256, kSpecOutput = 256, kSpecDrafts = 7;
constexpr int64_t kPhraseTokens = 32;  // the phrase that a prompt of the task copy repeats

// Times of the measured runs, one prompt at a time.
struct SingleTimes {
  std::vector<double> first_token, mean_gap;
  // Between all tokens, measured on the runtime's thread, so that a slow reader does not matter.
  Histogram gaps;
};

Result<SingleTimes> TimeSingles(const BenchOptions& options, int64_t prompt_tokens,
                                int64_t output_tokens, int64_t vocab_size, Runtime* runtime) {
  SingleTimes times;
  Histogram gaps_before;
  for (int i = 0; i <= options.repeat; ++i) {
    const Prompt prompt = RandomPrompt(prompt_tokens, output_tokens, vocab_size, options.seed,
                                       static_cast<uint64_t>(i));
    MINISGL_ASSIGN_OR_RETURN(const BatchRun run, RunPrompts({prompt}, runtime));
    if (i == 0) {
      gaps_before = runtime->Stats().between_tokens_s;
      continue;
    }
    times.first_token.push_back(run.first_token_s[0]);
    times.mean_gap.push_back((run.seconds - run.first_token_s[0]) /
                             static_cast<double>(output_tokens - 1));
  }
  times.gaps = runtime->Stats().between_tokens_s.Since(gaps_before);
  return times;
}

struct FirstToken {
  double seconds = 0;
  int64_t cached_tokens = 0;
};

Result<FirstToken> TimeFirstToken(Prompt prompt, Runtime* runtime) {
  MINISGL_ASSIGN_OR_RETURN(const BatchRun run, RunPrompts({std::move(prompt)}, runtime));
  return FirstToken{run.first_token_s[0], run.cached_tokens};
}

// One side of the comparison with and without drafts: all runs after the first.
struct SpecSide {
  double seconds = 0;  // median
  int64_t steps = 0, drafted = 0, accepted = 0, output_tokens = 0;
  std::vector<std::vector<TokenId>> token_ids;  // of the last run

  // Mean for one answer.
  double tokens_per_step() const {
    const auto rows = static_cast<double>(token_ids.size());
    return static_cast<double>(output_tokens) / rows / static_cast<double>(steps);
  }
};

std::vector<Prompt> SpecPrompts(const BenchOptions& options, const LatencyOptions& sizes,
                                int64_t vocab_size, int run) {
  const int64_t prompt_tokens = sizes.prompt_tokens.value_or(kSpecPrompt);
  const int64_t output_tokens = sizes.output_tokens.value_or(kSpecOutput);
  std::vector<Prompt> prompts;
  for (int32_t i = 0; i < sizes.batch; ++i) {
    Prompt prompt = RandomPrompt(prompt_tokens, output_tokens, vocab_size, options.seed,
                                 static_cast<uint64_t>(run * sizes.batch + i));
    if (sizes.task == SpecTask::kCopy) {
      for (size_t at = kPhraseTokens; at < prompt.ids.size(); ++at) {
        prompt.ids[at] = prompt.ids[at - kPhraseTokens];
      }
    } else {
      prompt.sampling.temperature = 1;
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<SpecSide> MeasureSpec(const BenchOptions& options, const LatencyOptions& sizes,
                             const BenchModel& model, const load::DraftOption& drafts,
                             BenchReport* report) {
  load::EngineOptions engine = options.engine;
  engine.drafts = drafts;
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running, StartBenchModel(model, engine, report));
  SpecSide side;
  std::vector<double> seconds;
  for (int i = 0; i <= options.repeat; ++i) {
    MINISGL_ASSIGN_OR_RETURN(BatchRun run,
                             RunPrompts(SpecPrompts(options, sizes, model.config.vocab_size, i),
                                        running.bare.runtime.get()));
    if (i == 0) continue;
    seconds.push_back(run.seconds);
    side.steps += run.steps;
    side.drafted += run.drafted_tokens;
    side.accepted += run.accepted_drafts;
    side.output_tokens += run.output_tokens;
    side.token_ids = std::move(run.token_ids);
  }
  side.seconds = Median(seconds);
  return side;
}

Json SideJson(const SpecSide& side, int repeat) {
  Json json;
  json.Set("seconds", side.seconds);
  json.Set("output_tokens_per_s", static_cast<double>(side.output_tokens) / repeat / side.seconds);
  json.Set("steps", side.steps);
  json.Set("drafted_tokens", side.drafted);
  json.Set("accepted_drafts", side.accepted);
  json.Set("tokens_per_step", side.tokens_per_step());
  return json;
}

void ReportSide(const char* name, const SpecSide& side, int repeat, BenchReport* report) {
  report->Line(
      name, fmt::format("{}, {:.0f} tokens/s, {:.2f} tokens a step, {} of {} drafts accepted",
                        FormatSeconds(side.seconds),
                        static_cast<double>(side.output_tokens) / repeat / side.seconds,
                        static_cast<double>(side.output_tokens) / static_cast<double>(side.steps),
                        side.accepted, side.drafted));
}

}  // namespace

Status BenchSingle(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running,
                           StartBenchModel(model, options.engine, report));
  const int64_t prompt_tokens = sizes.prompt_tokens.value_or(kSinglePrompt);
  const int64_t output_tokens = sizes.output_tokens.value_or(kSingleOutput);
  MINISGL_ASSIGN_OR_RETURN(const SingleTimes times,
                           TimeSingles(options, prompt_tokens, output_tokens,
                                       model.config.vocab_size, running.bare.runtime.get()));
  const double first_token = Median(times.first_token), mean_gap = Median(times.mean_gap);
  const double gap = times.gaps.Percentile(50);
  const double limit =
      StepLimit(1, prompt_tokens + output_tokens / 2, running.cost, model.ceilings.rates);
  Json json;
  json.Set("prompt_tokens", prompt_tokens);
  json.Set("output_tokens", output_tokens);
  json.Set("first_token_s", first_token);
  json.Set("between_tokens_s", gap);
  json.Set("mean_between_tokens_s", mean_gap);
  json.Set("num_gaps", times.gaps.count());
  // By the mean: the histogram's median is accurate to 1.1 % only.
  json.Set("output_tokens_per_s", 1 / mean_gap);
  json.Set("limit_s", limit);
  json.Set("ratio_to_limit", limit / mean_gap);
  report->json().Set("result", std::move(json));
  report->Line("first token", FormatSeconds(first_token));
  report->Line("each next", fmt::format("{} (median {}), {:.1f} tokens/s", FormatSeconds(mean_gap),
                                        FormatSeconds(gap), 1 / mean_gap));
  report->Line("limit", fmt::format("{} a token, {:.1f} tokens/s; reached {}", FormatSeconds(limit),
                                    1 / limit, FormatPercent(limit / mean_gap)));
  return Status();
}

namespace {

// Times to the first token of BenchPrefix, a round each.
struct PrefixTimes {
  std::vector<double> cold, warm, loaded;
  int64_t cached_tokens = 0, loaded_tokens = 0;
};

// One prompt, one with the same prefix, and, with a folder, that one again from its files.
Status TimePrefix(Prompt prompt, const Prompt& other, bool has_folder, Runtime* runtime,
                  PrefixTimes* times) {
  MINISGL_ASSIGN_OR_RETURN(const FirstToken first, TimeFirstToken(prompt, runtime));
  std::copy(other.ids.begin(), other.ids.end(), prompt.ids.end() - std::ssize(other.ids));
  MINISGL_ASSIGN_OR_RETURN(const FirstToken again, TimeFirstToken(prompt, runtime));
  times->cold.push_back(first.seconds);
  times->warm.push_back(again.seconds);
  times->cached_tokens = again.cached_tokens;
  if (!has_folder) return Status();
  runtime->FinishSaves(std::chrono::minutes(10));
  runtime->ResetPrefixCache();
  MINISGL_ASSIGN_OR_RETURN(const FirstToken loaded, TimeFirstToken(prompt, runtime));
  times->loaded.push_back(loaded.seconds);
  times->loaded_tokens = loaded.cached_tokens;
  return Status();
}

void ReportLoaded(const PrefixTimes& times, double bytes_per_token, Json* json,
                  BenchReport* report) {
  const double cold_s = Median(times.cold), loaded_s = Median(times.loaded);
  const double bytes = static_cast<double>(times.loaded_tokens) * bytes_per_token;
  json->Set("loaded_tokens", times.loaded_tokens);
  json->Set("loaded_bytes", bytes);
  json->Set("loaded_first_token_s", loaded_s);
  json->Set("loaded_speedup", cold_s / loaded_s);
  report->Line("from files", fmt::format("{} with {} tokens from files, {:.2f} GB/s, {:.1f} times",
                                         FormatSeconds(loaded_s), times.loaded_tokens,
                                         bytes / 1e9 / loaded_s, cold_s / loaded_s));
}

}  // namespace

Status BenchPrefix(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report) {
  const bool has_folder = !sizes.store_folder.empty();
  load::PrivatePrefixFolder folder(sizes.store_folder);
  if (has_folder) MINISGL_RETURN_IF_ERROR(folder.Open());
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  load::EngineOptions engine = options.engine;
  engine.prefix_cache.folder = sizes.store_folder;
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running, StartBenchModel(model, engine, report));
  const int64_t prefix = sizes.prefix_tokens.value_or(model.on_gpu ? kGpuPrefix : kCpuPrefix);
  const int64_t suffix = sizes.suffix_tokens;
  PrefixTimes times;
  for (int i = 0; i <= options.repeat; ++i) {
    const auto stream = static_cast<uint64_t>(2 * i);
    const auto prompt_of = [&](int64_t count, uint64_t of) {
      return RandomPrompt(count, 1, model.config.vocab_size, options.seed, of);
    };
    if (i == 1) times = {};  // the first round warms up
    MINISGL_RETURN_IF_ERROR(TimePrefix(prompt_of(prefix + suffix, stream),
                                       prompt_of(suffix, stream + 1), has_folder,
                                       running.bare.runtime.get(), &times));
  }
  const Ceilings& rates = model.ceilings.rates;
  const double cold_limit = PrefillLimit(0, prefix + suffix, running.cost, rates);
  const double warm_limit = std::max(PrefillLimit(prefix, suffix, running.cost, rates),
                                     StepLimit(1, prefix + suffix, running.cost, rates));
  const double cold_s = Median(times.cold), warm_s = Median(times.warm);
  Json json;
  json.Set("prefix_tokens", prefix);
  json.Set("suffix_tokens", suffix);
  json.Set("cached_tokens", times.cached_tokens);
  json.Set("first_token_s", cold_s);
  json.Set("cached_first_token_s", warm_s);
  json.Set("speedup", cold_s / warm_s);
  json.Set("limit_s", cold_limit);
  json.Set("cached_limit_s", warm_limit);
  json.Set("ratio_to_limit", cold_limit / cold_s);
  json.Set("cached_ratio_to_limit", warm_limit / warm_s);
  report->Line("not cached", fmt::format("{} to the first token of {} + {}, {} of the limit",
                                         FormatSeconds(cold_s), prefix, suffix,
                                         FormatPercent(cold_limit / cold_s)));
  report->Line("cached", fmt::format("{} with {} tokens from the cache, {} of the limit",
                                     FormatSeconds(warm_s), times.cached_tokens,
                                     FormatPercent(warm_limit / warm_s)));
  report->Line("speed-up", fmt::format("{:.1f} times", cold_s / warm_s));
  if (has_folder) {
    ReportLoaded(times, static_cast<double>(running.bare.plan.kv_bytes_per_token), &json, report);
  }
  report->json().Set("result", std::move(json));
  return Status();
}

// kUsage for a drafter with files of its own.
Result<load::DraftOption> DraftsOf(const BenchOptions& options) {
  const load::DraftOption& drafts = options.engine.drafts;
  switch (drafts.kind) {
    case load::DraftKind::kMtp:
    case load::DraftKind::kNgram:
      return drafts;
    case load::DraftKind::kNone:
    case load::DraftKind::kAuto:
      return load::DraftOption{load::DraftKind::kNgram, kSpecDrafts, ""};
    default:
      return UsageError("bench spec drafts by ngram:K or by mtp:K (found a drafter in {})",
                        Visible(drafts.model, 400));
  }
}

Status BenchSpec(const BenchOptions& options, const LatencyOptions& sizes, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const load::DraftOption drafts, DraftsOf(options));
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  MINISGL_ASSIGN_OR_RETURN(const SpecSide plain,
                           MeasureSpec(options, sizes, model, load::DraftOption(), report));
  ReportSide("without", plain, options.repeat, report);
  MINISGL_ASSIGN_OR_RETURN(const SpecSide spec, MeasureSpec(options, sizes, model, drafts, report));
  const char* const kind = drafts.kind == load::DraftKind::kMtp ? "mtp" : "ngram";
  ReportSide(fmt::format("{}:{}", kind, drafts.max_drafts).c_str(), spec, options.repeat, report);
  const double accepted =
      spec.drafted == 0 ? 0
                        : static_cast<double>(spec.accepted) / static_cast<double>(spec.drafted);
  const bool same = plain.token_ids == spec.token_ids;
  Json json;
  json.Set("task", load::ChoiceName(kSpecTaskChoices, sizes.task));
  json.Set("batch", sizes.batch);
  json.Set("drafts", drafts.max_drafts);
  json.Set("drafter", kind);
  json.Set("without", SideJson(plain, options.repeat));
  json.Set("with", SideJson(spec, options.repeat));
  json.Set("acceptance", accepted);
  json.Set("speedup", plain.seconds / spec.seconds);
  json.Set("same_answers", same);
  report->json().Set("result", std::move(json));
  report->Line("speed-up", fmt::format("{:.2f} times, {} of drafts accepted, answers {}",
                                       plain.seconds / spec.seconds, FormatPercent(accepted),
                                       same ? "the same" : "differ"));
  return Status();
}

}  // namespace minisgl::bench
