// The model of a whole-step benchmark: its configuration, its weights (from a file or generated),
// and batches of random token ids run through the runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_device.h"
#include "bench/bench_limits.h"
#include "bench/bench_options.h"
#include "bench/bench_report.h"
#include "load/model_loader.h"
#include "minisgl/model/model_list.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::bench {

// Reads --shape, or config.json of --model. kUsage if neither is given.
Result<ModelConfig> LoadBenchConfig(const BenchOptions& options);

// A model and the limits of its machine, which are measured before the model is loaded.
struct BenchModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::shared_ptr<const ListedModel> drafter;  // of --speculate mtp, else null
  MeasuredCeilings ceilings;
  bool on_gpu = false;
};
// Also reports the benchmark, the model and the machine. kUsage for --shape without
// --dummy-weights.
Result<BenchModel> OpenBenchModel(const BenchOptions& options, BenchReport* report);

// Starts the runtime of `model`, and completes the cost of a step from the plan.
struct RunningModel {
  load::BareModel bare;
  ModelCost cost;
};
Result<RunningModel> StartBenchModel(const BenchModel& model, const load::EngineOptions& engine,
                                     BenchReport* report);

// Result of prompts that were submitted at once.
struct BatchRun {
  double seconds = 0;                           // until the last was done
  std::vector<double> first_token_s;            // of each request
  double all_started_s = 0;                     // when the last request had its first token
  int64_t decode_tokens = 0;                    // tokens after that time
  std::vector<std::vector<TokenId>> token_ids;  // of each request
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // Scheduler counters of the run:
  int64_t steps = 0, preemptions = 0, drafted_tokens = 0, accepted_drafts = 0;
  double host_step_s = 0;  // mean time of the scheduler's thread for a step

  // Rate while all answers run in parallel; 0 if the last to start ended at once.
  double decode_tokens_per_s() const {
    return seconds > all_started_s ? static_cast<double>(decode_tokens) / (seconds - all_started_s)
                                   : 0;
  }
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
};
// Runs `prompts` to the end. kUsage naming --max-seq-len if a prompt is too long; kInternal if one
// fails.
Result<BatchRun> RunPrompts(std::vector<Prompt> prompts, Runtime* runtime);

// Returns a prompt of `count` random ids below `vocab_size`, determined by (seed, stream), that
// generates exactly `output` tokens.
Prompt RandomPrompt(int64_t count, int64_t output, int64_t vocab_size, uint64_t seed,
                    uint64_t stream);

}  // namespace minisgl::bench
