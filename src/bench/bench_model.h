// The model that a benchmark of whole steps runs: its configuration, its weights (of a file or made
// up), and batches of random token ids through the runtime.
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
#include "minisgl/runtime/runtime.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::bench {

// --shape, or else config.json of --model. kUsage where neither is given.
Result<ModelConfig> LoadBenchConfig(const BenchOptions& options);

// A model and what its machine allows. The ceilings were measured before it was loaded.
struct BenchModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  MeasuredCeilings ceilings;
  bool on_gpu = false;
};
// Also tells the report what is measured, and where. kUsage for --shape without --dummy-weights.
Result<BenchModel> OpenBenchModel(const BenchOptions& options, BenchReport* report);

// Starts the runtime of `model`, and completes the cost of a step by what it was planned with.
struct RunningModel {
  load::BareModel bare;
  ModelCost cost;
};
Result<RunningModel> StartBenchModel(const BenchModel& model, const load::EngineOptions& engine,
                                     BenchReport* report);

// What came back of prompts that were submitted at once.
struct BatchRun {
  double seconds = 0;                           // until the last was done
  std::vector<double> first_token_s;            // of each
  double all_started_s = 0;                     // when the last of them had its first token
  int64_t decode_tokens = 0;                    // that came after that
  std::vector<std::vector<TokenId>> token_ids;  // of each
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // Of the scheduler during the run:
  int64_t steps = 0, preemptions = 0, drafted_tokens = 0, accepted_drafts = 0;
  double host_step_s = 0;  // mean time of its thread for a step

  // Of answers that go on side by side; 0 where the last to begin ended at once.
  double decode_tokens_per_s() const {
    return seconds > all_started_s ? static_cast<double>(decode_tokens) / (seconds - all_started_s)
                                   : 0;
  }
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
};
// kUsage naming --max-seq-len for a prompt that cannot be as long; kInternal where one fails.
Result<BatchRun> RunPrompts(std::vector<Prompt> prompts, Runtime* runtime);

// A prompt of `count` random ids below `vocab_size` that asks for `output` tokens whatever they
// are; (seed, stream) decides.
Prompt RandomPrompt(int64_t count, int64_t output, int64_t vocab_size, uint64_t seed,
                    uint64_t stream);

}  // namespace minisgl::bench
