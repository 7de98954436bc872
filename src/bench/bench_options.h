// Options of minisgl bench: common options, and options of each benchmark.
//
// Default sizes depend on the device (a GPU, or a CPU, on which all benchmarks together should take
// minutes), so they are optional here and set after the device is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_device.h"
#include "load/options.h"

namespace minisgl::bench {

struct BenchOptions {
  std::string model;  // a directory; "" means none
  std::string shape;  // a config.json; "" means none
  bool dummy_weights = false;
  bool quiet = false;
  bool verbose = false;
  load::EngineOptions engine;
  std::string json;  // "" means none, "-" is standard output
  bool force = false;
  uint64_t seed = 0;
  int repeat = 3;
  CeilingSizes ceilings;
};

// nano, uniform and shared.
struct ThroughputOptions {
  std::optional<int32_t> num_seqs;  // of nano
  int32_t uniform_seqs = 0, uniform_input = 0, uniform_output = 0;
  int32_t shared_seqs = 0, shared_prefix = 0, shared_own = 0, shared_output = 0;
  SamplingParams sampling{.temperature = 0.6};
};

// Prompts of spec: texts that repeat a phrase, or random tokens.
enum class SpecTask : uint8_t { kCopy, kRandom };
inline constexpr load::Choice<SpecTask> kSpecTaskChoices[] = {{"copy", SpecTask::kCopy},
                                                              {"random", SpecTask::kRandom}};

// bs1, prefix and spec
struct LatencyOptions {
  std::optional<int32_t> prompt_tokens, output_tokens;
  std::optional<int32_t> prefix_tokens;
  int32_t suffix_tokens = 16;
  std::string store_folder;  // of prefix; "" is none
  SpecTask task = SpecTask::kCopy;
  int32_t batch = 1;
};

// attn-decode, attn-prefill and cascade.
struct AttentionOptions {
  std::vector<int32_t> page_sizes, batches, contexts, cached, prefixes;
  int32_t suffix = 256;
  std::optional<int32_t> num_heads, num_kv_heads, head_dim;
  std::optional<int64_t> cold_mib;  // distinct keys and values that launches rotate over
};

// What products' weights are in; kModel: what the model's files or --dtype and --quantize say.
enum class ProductFormat : uint8_t { kModel, kBf16, kF16, kInt8, kInt4, kFp8, kFp8Blocks };
inline constexpr load::Choice<ProductFormat> kProductFormatChoices[] = {
    {"model", ProductFormat::kModel},
    {"bf16", ProductFormat::kBf16},
    {"f16", ProductFormat::kF16},
    {"int8", ProductFormat::kInt8},
    {"int4", ProductFormat::kInt4},
    {"fp8", ProductFormat::kFp8},
    {"fp8-blocks", ProductFormat::kFp8Blocks}};

// products
struct ProductOptions {
  std::vector<int32_t> tokens;
  ProductFormat format = ProductFormat::kModel;
  std::optional<int64_t> cold_mib;  // distinct weights that launches rotate over
};

void AddBenchOptions(load::OptionTable* app, BenchOptions* options);
// Removes engine options that a benchmark of one operation does not use.
void RemoveSchedulingOptions(load::OptionTable* app);

void AddNanoOptions(load::OptionTable* app, ThroughputOptions* options);
void AddUniformOptions(load::OptionTable* app, ThroughputOptions* options);
void AddSharedOptions(load::OptionTable* app, ThroughputOptions* options);
void AddSingleOptions(load::OptionTable* app, LatencyOptions* options);
void AddPrefixOptions(load::OptionTable* app, LatencyOptions* options);
void AddSpecOptions(load::OptionTable* app, LatencyOptions* options);
void AddAttentionDecodeOptions(load::OptionTable* app, AttentionOptions* options);
void AddAttentionPrefillOptions(load::OptionTable* app, AttentionOptions* options);
void AddCascadeOptions(load::OptionTable* app, AttentionOptions* options);
void AddProductOptions(load::OptionTable* app, ProductOptions* options);

}  // namespace minisgl::bench
