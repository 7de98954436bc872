#include "bench/bench_options.h"

#include <fmt/core.h>

#include <utility>

#include "minisgl/sampling_fields.h"

namespace minisgl::bench {
namespace {

constexpr const char* kGroup = "Benchmark";
constexpr int64_t kTokensMax = 1 << 24;

// A name that begins with -- is the next option, where FILE was left out.
std::string CheckIsFileName(const std::string& text) {
  if (!text.starts_with("--")) return load::CheckNotEmpty(text);
  return "must be followed by FILE, or by - for standard output; ./" + text + " names such a file";
}

template <typename T>
load::TableOption* Add(load::OptionTable* app, const char* names, T* value, const char* type,
                       const char* help, load::OptionCheck check) {
  return app->Add(names, value, help)->Check(std::move(check))->TypeName(type)->Group(kGroup);
}

load::TableOption* AddTokens(load::OptionTable* app, const char* names,
                             std::optional<int32_t>* value, const char* help) {
  return Add(app, names, value, "N", help, load::IntegerIn(1, kTokensMax));
}

// Adds an option whose value is a list of numbers separated by commas.
void AddList(load::OptionTable* app, const char* names, std::vector<int32_t>* values,
             const char* help, int64_t low, int64_t high) {
  Add(app, names, values, "N,...", help, load::IntegerIn(low, high))
      ->Delimiter(',')
      ->OneValueEach();
}

void AddPageSizes(load::OptionTable* app, AttentionOptions* options) {
  app->Add("--page-sizes", &options->page_sizes,
           "Tokens in a page: powers of two up to 64 (default 1,16,64)")
      ->OneOf({"1", "2", "4", "8", "16", "32", "64"})
      ->Delimiter(',')
      ->OneValueEach()
      ->TypeName("N,...")
      ->Group(kGroup);
}

void AddHeads(load::OptionTable* app, AttentionOptions* options) {
  const load::OptionCheck heads = load::IntegerIn(1, 1024);
  Add(app, "--heads", &options->num_heads, "N", "Query heads (default: the model's, or 16)", heads);
  Add(app, "--kv-heads", &options->num_kv_heads, "N", "KV heads (default: the model's, or 8)",
      heads);
  Add(app, "--head-dim", &options->head_dim, "N", "Width of a head (default: the model's, or 128)",
      load::IntegerIn(2, 4096));
  Add(app, "--cold-mib", &options->cold_mib, "N",
      "MiB of keys and values to rotate over (default 3072 on a GPU, 64 on a CPU)",
      load::IntegerIn(1, 1 << 20));
}

void AddTemperature(load::OptionTable* app, ThroughputOptions* options) {
  Add(app, "--temperature", &options->sampling.temperature, "T", "Temperature (default 0.6)",
      load::InRange(kTemperature.range));
  Add(app, "--top-p", &options->sampling.top_p, "P",
      "Sample from the likeliest tokens with total probability P (default 1)",
      load::InRange(kTopP.range));
}

}  // namespace

void AddBenchOptions(load::OptionTable* app, BenchOptions* options) {
  const std::string model = "Model";
  app->Add("-m,--model", &options->model, "Model directory, or OWNER/NAME of one in the hub cache")
      ->EnvName("MINISGL_MODEL")
      ->TypeName("DIR")
      ->Group(model);
  app->Add("--shape", &options->shape, "A config.json alone, in place of a model directory")
      ->TypeName("FILE")
      ->Group(model);
  app->AddFlag("--dummy-weights", &options->dummy_weights,
               "Use random weights: speed does not depend on their values")
      ->Group(model);
  Add(app, "--repeat", &options->repeat, "N", "Timed runs, after one that is not timed (default 3)",
      load::IntegerIn(1, 1000));
  Add(app, "--seed", &options->seed, "N", "Seed of token ids and made-up values (default 0)",
      load::IntegerIn(0, int64_t{1} << 62));
  Add(app, "--copy-mib", &options->ceilings.copy_mib, "N",
      "MiB of the copy that measures memory (default 1024 on a GPU, 128 on a CPU)",
      load::IntegerIn(1, 1 << 20));
  Add(app, "--matrix-size", &options->ceilings.matrix_size, "N",
      "Size of the matrix product that measures computing (default 8192 on a GPU, 1024 on a CPU)",
      load::IntegerIn(16, 1 << 15));
  app->Add("--json", &options->json,
           "Write all figures to FILE as JSON; - is standard output, in place of the text")
      ->Check(CheckIsFileName)
      ->TypeName("FILE")
      ->Group(kGroup);
  app->AddFlag("--force", &options->force, "Replace a file that is not empty")->Group(kGroup);
  app->AddFlag("-q,--quiet", &options->quiet, "Print only errors and warnings");
  app->AddFlag("-v,--verbose", &options->verbose, "Print more about what is done");
  load::AddEngineOptions(app, &options->engine);
}

void RemoveSchedulingOptions(load::OptionTable* app) {
  app->RemoveGroup("Engine", {"--device", "--threads", "--cpu-target", "--pin-threads",
                              "--deterministic", "--kv-dtype"});
}

void AddNanoOptions(load::OptionTable* app, ThroughputOptions* options) {
  Add(app, "--num-seqs", &options->num_seqs, "N",
      "The first N prompts of the 256 (default all on a GPU, 16 on a CPU)",
      load::IntegerIn(1, 256));
  AddTemperature(app, options);
}

void AddUniformOptions(load::OptionTable* app, ThroughputOptions* options) {
  Add(app, "N", &options->uniform_seqs, "", "Prompts", load::IntegerIn(1, 1 << 20))->Required();
  Add(app, "IN", &options->uniform_input, "", "Tokens of each prompt",
      load::IntegerIn(1, kTokensMax))
      ->Required();
  Add(app, "OUT", &options->uniform_output, "", "Tokens of each answer",
      load::IntegerIn(1, kTokensMax))
      ->Required();
  AddTemperature(app, options);
}

void AddSharedOptions(load::OptionTable* app, ThroughputOptions* options) {
  Add(app, "N", &options->shared_seqs, "", "Prompts", load::IntegerIn(1, 1 << 20))->Required();
  Add(app, "PREFIX", &options->shared_prefix, "", "Tokens that all prompts begin with",
      load::IntegerIn(1, kTokensMax))
      ->Required();
  Add(app, "OWN", &options->shared_own, "", "Tokens of each prompt after them",
      load::IntegerIn(1, kTokensMax))
      ->Required();
  Add(app, "OUT", &options->shared_output, "", "Tokens of each answer",
      load::IntegerIn(1, kTokensMax))
      ->Required();
  AddTemperature(app, options);
}

void AddSingleOptions(load::OptionTable* app, LatencyOptions* options) {
  AddTokens(app, "--prompt-tokens", &options->prompt_tokens, "Tokens of the prompt (default 128)");
  Add(app, "--output-tokens", &options->output_tokens, "N", "Tokens of the answer (default 512)",
      load::IntegerIn(2, kTokensMax));
}

void AddPrefixOptions(load::OptionTable* app, LatencyOptions* options) {
  AddTokens(app, "--prefix-tokens", &options->prefix_tokens,
            "Tokens that prompts share (default 8192 on a GPU, 1024 on a CPU)");
  Add(app, "--suffix-tokens", &options->suffix_tokens, "N",
      "Tokens of each prompt after them (default 16)", load::IntegerIn(1, kTokensMax));
  app->Add("--prefix-cache", &options->store_folder,
           "Time the prefix read from files, too: of DIR, which is made, or empty, and is empty "
           "afterwards")
      ->Check(load::CheckNotEmpty)
      ->TypeName("DIR")
      ->Group(kGroup);
}

void AddSpecOptions(load::OptionTable* app, LatencyOptions* options) {
  app->AddChoice("--task", &options->task, kSpecTaskChoices,
                 "copy: prompts that repeat a phrase; random: text without repeats (default copy)")
      ->TypeName("KIND")
      ->Group(kGroup);
  Add(app, "--batch", &options->batch, "N", "Prompts at once (default 1)",
      load::IntegerIn(1, 4096));
  AddTokens(app, "--prompt-tokens", &options->prompt_tokens, "Tokens of the prompt (default 256)");
  Add(app, "--output-tokens", &options->output_tokens, "N", "Tokens of the answer (default 256)",
      load::IntegerIn(2, kTokensMax));
}

void AddAttentionDecodeOptions(load::OptionTable* app, AttentionOptions* options) {
  AddPageSizes(app, options);
  AddList(app, "--batches", &options->batches, "Rows (default 1,8,64,256 on a GPU, 1,8 on a CPU)",
          1, 1 << 16);
  AddList(app, "--contexts", &options->contexts,
          "Keys of each row (default 128,1024,4096,32768 on a GPU, 128,1024 on a CPU)", 1,
          kTokensMax);
  AddHeads(app, options);
}

void AddAttentionPrefillOptions(load::OptionTable* app, AttentionOptions* options) {
  AddPageSizes(app, options);
  AddList(app, "--contexts", &options->contexts,
          "Tokens to compute (default 4096,8192 on a GPU, 256,512 on a CPU)", 1, 1 << 20);
  AddList(app, "--cached", &options->cached,
          "Cached tokens before them (default 0,8192 on a GPU, 0,512 on a CPU)", 0, kTokensMax);
  AddHeads(app, options);
}

void AddCascadeOptions(load::OptionTable* app, AttentionOptions* options) {
  AddPageSizes(app, options);
  AddList(app, "--batches", &options->batches, "Rows (default 64 on a GPU, 16 on a CPU)", 1,
          1 << 16);
  AddList(app, "--prefixes", &options->prefixes,
          "Keys that all rows share (default 256,512,2048,8192,32768 on a GPU, 512,2048 on a CPU)",
          1, kTokensMax);
  Add(app, "--suffix", &options->suffix, "N", "Keys of each row's own (default 256)",
      load::IntegerIn(1, kTokensMax));
  AddHeads(app, options);
}

void AddProductOptions(load::OptionTable* app, ProductOptions* options) {
  AddList(app, "--tokens", &options->tokens,
          "Rows of each product (default 1,8,16,64,256 on a GPU, 1,8,64 on a CPU)", 1, 1 << 20);
  app->AddChoice("--format", &options->format, kProductFormatChoices,
                 "Weights: model, bf16, f16, int8, int4, fp8 or fp8-blocks (default model)")
      ->TypeName("KIND")
      ->Group(kGroup);
  Add(app, "--cold-mib", &options->cold_mib, "N",
      "MiB of weights to rotate over (default 1024 on a GPU, 64 on a CPU)",
      load::IntegerIn(1, 1 << 20));
}

}  // namespace minisgl::bench
