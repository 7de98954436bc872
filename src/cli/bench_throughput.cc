// Batches whose prompts are all there at the start. Every run has token ids of its own, so that no
// run finds its prompts cached by the one before.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/bench.h"
#include "cli/bench_model.h"
#include "cli/bench_nano.h"

namespace minisgl {
namespace {

constexpr int32_t kCpuNanoSeqs = 16;

std::vector<Prompt> MakePrompts(const std::vector<Lengths>& rows, const ThroughputOptions& sizes,
                                int64_t vocab_size, uint64_t seed, int run) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint64_t stream = static_cast<uint64_t>(run) * rows.size() + i;
    Prompt prompt = RandomPrompt(rows[i].prompt, rows[i].output, vocab_size, seed, stream);
    prompt.sampling.temperature = sizes.temperature;
    prompt.sampling.top_p = sizes.top_p;
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

Status Measure(const BenchOptions& options, const ThroughputOptions& sizes, const BenchModel& model,
               const std::vector<Lengths>& rows, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const RunningModel running,
                           StartBenchModel(model, options.engine, report));
  Runtime* runtime = running.bare.runtime.get();
  const WorkloadLimit limit =
      LimitOf(rows, runtime->limits().max_running_requests, running.cost, model.ceilings.rates);
  ReportLimit(limit, report);
  Json runs = Json(Json::Array());
  std::vector<double> seconds;
  for (int i = 0; i <= options.repeat; ++i) {
    MINISGL_ASSIGN_OR_RETURN(
        const BatchRun run,
        RunPrompts(MakePrompts(rows, sizes, model.config.vocab_size, options.seed, i), runtime));
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
  }
  report->json().Set("runs", std::move(runs));
  ReportMedian(seconds, limit, report);
  return Status();
}

}  // namespace

Status BenchNano(const BenchOptions& options, const ThroughputOptions& sizes, BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  const auto all = NanoLengths();
  const int32_t count =
      sizes.num_seqs.value_or(model.on_gpu ? static_cast<int32_t>(all.size()) : kCpuNanoSeqs);
  return Measure(options, sizes, model, {all.begin(), all.begin() + count}, report);
}

Status BenchUniform(const BenchOptions& options, const ThroughputOptions& sizes,
                    BenchReport* report) {
  MINISGL_ASSIGN_OR_RETURN(const BenchModel model, OpenBenchModel(options, report));
  const std::vector<Lengths> rows(static_cast<size_t>(sizes.uniform_seqs),
                                  {sizes.uniform_input, sizes.uniform_output});
  return Measure(options, sizes, model, rows, report);
}

}  // namespace minisgl
