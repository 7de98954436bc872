// Benchmarks of batches whose prompts are all present at the start. Each run has different token
// ids, so that no run finds prompts of an earlier one in the cache.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "bench/bench_model.h"
#include "bench/bench_nano.h"

namespace minisgl::bench {
namespace {

constexpr int32_t kCpuNanoSeqs = 16;

std::vector<Prompt> MakePrompts(const std::vector<Lengths>& rows, const ThroughputOptions& sizes,
                                int64_t vocab_size, uint64_t seed, int run) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t stream = static_cast<uint64_t>(run) * rows.size() + i;
    Prompt prompt = RandomPrompt(rows[i].prompt, rows[i].output, vocab_size, seed, stream);
    prompt.sampling.temperature = sizes.sampling.temperature;
    prompt.sampling.top_p = sizes.sampling.top_p;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

void ReportLimit(const WorkloadLimit& limit, BenchReport* report) {
  Json workload;
  workload.Set("prompt_tokens", limit.prompt_tokens);
  workload.Set("output_tokens", limit.output_tokens);
  workload.Set("prompt_pairs", limit.prompt_pairs);
  workload.Set("decode_steps", limit.decode_steps);
  workload.Set("decode_rows", limit.decode_rows);
  workload.Set("kv_positions", limit.kv_positions);
  report->json().Set("workload", std::move(workload));
  Json json;
  json.Set("prefill_s", limit.prefill_s);
  json.Set("weights_s", limit.weights_s);
  json.Set("kv_s", limit.kv_s);
  json.Set("total_s", limit.total_s());
  json.Set("output_tokens_per_s", limit.output_tokens_per_s());
  report->json().Set("limit", std::move(json));
  const double steps = static_cast<double>(std::max<int64_t>(limit.decode_steps, 1));
  report->Line("workload", fmt::format("{} tokens in, {} out, {} decode steps of {:.1f} rows",
                                       limit.prompt_tokens, limit.output_tokens, limit.decode_steps,
                                       static_cast<double>(limit.decode_rows) / steps));
  report->Line(
      "limit",
      fmt::format("{} = prefill {} + weights {} + KV {}; {} a decode step; {:.0f} tokens/s",
                  FormatSeconds(limit.total_s()), FormatSeconds(limit.prefill_s),
                  FormatSeconds(limit.weights_s), FormatSeconds(limit.kv_s),
                  FormatSeconds((limit.weights_s + limit.kv_s) / steps),
                  limit.output_tokens_per_s()));
}

Json RunJson(const BatchRun& run) {
  Json json;
  json.Set("seconds", run.seconds);
  json.Set("output_tokens_per_s", run.output_tokens_per_s());
  json.Set("output_tokens", run.output_tokens);
  json.Set("all_started_s", run.all_started_s);
  json.Set("decode_tokens_per_s", run.decode_tokens_per_s());
  json.Set("steps", run.steps);
  json.Set("preemptions", run.preemptions);
  json.Set("cached_tokens", run.cached_tokens);
  json.Set("host_step_s", run.host_step_s);
  return json;
}

void ReportMedian(const std::vector<double>& seconds, const WorkloadLimit& limit,
                  BenchReport* report) {
  const double median = Median(seconds);
  const double rate = static_cast<double>(limit.output_tokens) / median;
  const double ratio = limit.total_s() / median;
  Json json;
  json.Set("seconds", median);
  json.Set("output_tokens_per_s", rate);
  json.Set("total_tokens_per_s",
           static_cast<double>(limit.prompt_tokens + limit.output_tokens) / median);
  json.Set("ratio_to_limit", ratio);
  report->json().Set("median", std::move(json));
  report->Line("median", fmt::format("{}, {:.0f} tokens/s, {} of the limit", FormatSeconds(median),
                                     rate, FormatPercent(ratio)));
}

// Reports the decode rate after each row has its first token.
void ReportDecoding(const std::vector<double>& rates, const std::vector<double>& started,
                    BenchReport* report) {
  if (Median(rates) == 0) return;  // every answer has one token
  Json json;
  json.Set("all_started_s", Median(started));
  json.Set("tokens_per_s", Median(rates));
  report->json().Set("decoding", std::move(json));
  report->Line("decoding", fmt::format("{:.1f} tokens/s after {}, when every row had its first",
                                       Median(rates), FormatSeconds(Median(started))));
}

// `make_prompts` returns the prompts of a run, which have no token ids in common with another run.
Status Measure(const BenchOptions& options, const WorkloadLimit& limit,
               const std::function<std::vector<Prompt>(int run)>& make_prompts, Runtime* runtime,
               BenchReport* report) {
  ReportLimit(limit, report);
  Json runs = Json(Json::Array());
  std::vector<double> seconds, decode_rates, started;
  for (int i = 0; i <= options.repeat; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const BatchRun run, RunPrompts(make_prompts(i), runtime));
    const std::string name = i == 0 ? std::string("warm-up") : fmt::format("run {}", i);
    report->Line(
        name, fmt::format("{}, {:.0f} tokens/s, {} steps, {} of the host's time a step{}",
                          FormatSeconds(run.seconds), run.output_tokens_per_s(), run.steps,
                          FormatSeconds(run.host_step_s),
                          run.preemptions == 0 ? std::string()
                                               : fmt::format(", {} preemptions", run.preemptions)));
    if (i == 0) continue;
    runs.Append(RunJson(run));
    seconds.push_back(run.seconds);
    decode_rates.push_back(run.decode_tokens_per_s());
    started.push_back(run.all_started_s);
  }
  report->json().Set("runs", std::move(runs));
  ReportMedian(seconds, limit, report);
  ReportDecoding(decode_rates, started, report);
  return Status();
}

Status MeasureRows(const BenchOptions& options, const ThroughputOptions& sizes,
                   const BenchModel& model, const std::vector<Lengths>& rows, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running,
                           StartBenchModel(model, options.engine, report));
  Runtime* runtime = running.bare.runtime.get();
  const WorkloadLimit limit =
      LimitOf(rows, runtime->limits().max_running_requests, running.cost, model.ceilings.rates);
  return Measure(
      options, limit,
      [&](int run) { return MakePrompts(rows, sizes, model.config.vocab_size, options.seed, run); },
      runtime, report);
}

// Stream 0 of a run gives the shared prefix, stream i + 1 the rest of row i.
std::vector<Prompt> MakeSharedPrompts(const ThroughputOptions& sizes, int64_t vocab_size,
                                      uint64_t seed, int run) {
  const uint64_t stream = static_cast<uint64_t>(run) * (uint64_t{1} << 32);
  const Prompt stem =
      RandomPrompt(sizes.shared_prefix, sizes.shared_output, vocab_size, seed, stream);
  std::vector<Prompt> prompts;
  for (int32_t i = 0; i < sizes.shared_seqs; ++i) {
    Prompt prompt = RandomPrompt(sizes.shared_own, sizes.shared_output, vocab_size, seed,
                                 stream + static_cast<uint64_t>(i) + 1);
    prompt.ids.insert(prompt.ids.begin(), stem.ids.begin(), stem.ids.end());
    prompt.sampling.temperature = sizes.sampling.temperature;
    prompt.sampling.top_p = sizes.sampling.top_p;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Status BenchNano(const BenchOptions& options, const ThroughputOptions& sizes, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  const auto all = NanoLengths();
  const int32_t count =
      sizes.num_seqs.value_or(model.on_gpu ? static_cast<int32_t>(all.size()) : kCpuNanoSeqs);
  return MeasureRows(options, sizes, model, {all.begin(), all.begin() + count}, report);
}

Status BenchUniform(const BenchOptions& options, const ThroughputOptions& sizes,
                    BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  const std::vector<Lengths> rows(static_cast<size_t>(sizes.uniform_seqs),
                                  {sizes.uniform_input, sizes.uniform_output});
  return MeasureRows(options, sizes, model, rows, report);
}

Status BenchShared(const BenchOptions& options, const ThroughputOptions& sizes,
                   BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running,
                           StartBenchModel(model, options.engine, report));
  Runtime* runtime = running.bare.runtime.get();
  const int32_t most = runtime->limits().max_running_requests;
  if (sizes.shared_seqs > most) {
    return UsageError("{} prompts do not run at once ({} do); see --max-running-requests",
                      sizes.shared_seqs, most);
  }
  const WorkloadLimit limit =
      LimitOfShared(sizes.shared_seqs, sizes.shared_prefix, {sizes.shared_own, sizes.shared_output},
                    running.cost, model.ceilings.rates);
  return Measure(
      options, limit,
      [&](int run) { return MakeSharedPrompts(sizes, model.config.vocab_size, options.seed, run); },
      runtime, report);
}

}  // namespace minisgl::bench
