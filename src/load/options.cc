#include "load/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "load/adapter_choice.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/ranks.h"
#include "minisgl/sampling_fields.h"

namespace minisgl::load {
namespace {

constexpr int64_t kOptionMax = std::numeric_limits<int32_t>::max();

std::string CheckSeed(const std::string& text) {
  if (text == "-1" || ParseNumber<uint64_t>(text)) return "";
  return fmt::format("must be an integer from 0 to {}, or -1 (found {})",
                     std::numeric_limits<uint64_t>::max(), Visible(text));
}

std::string CheckMaxTokens(const std::string& text) {
  const int64_t value = ParseNumber<int64_t>(text).value_or(0);
  if (value == -1 || kMaxTokensRange.Holds(value)) return "";
  return fmt::format("must be {}, or -1 (found {})", Describe(kMaxTokensRange), Visible(text));
}

std::string CheckDevice(const std::string& text) {
  if (ParseDevice(text)) return "";
  return fmt::format("must be auto, cpu, cuda, cuda:N, cuda:N,N,... or cuda:all (found {})",
                     Visible(text));
}

std::string CheckCpuExperts(const std::string& text) {
  if (ParseCpuExperts(text)) return "";
  return fmt::format("must be a number of layers from 0 to {}, all or auto (found {})", kOptionMax,
                     Visible(text));
}

std::string CheckPageSize(const std::string& text) {
  const int64_t value = ParseNumber<int64_t>(text).value_or(0);
  if (value >= 1 && value <= 64 && (value & (value - 1)) == 0) return "";
  return fmt::format("must be a power of two from 1 to 64 (found {})", Visible(text));
}

std::string CheckTemplateArg(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0) return "";
  return fmt::format("must be NAME=VALUE (found {})", Visible(text));
}

void AddToolDialect(OptionTable* app, const std::string& group, ModelOptions* options) {
  std::vector<std::string> words = {"auto", "none"};
  for (const ToolDialectName& known : ToolDialectNames()) words.emplace_back(known.name);
  app->AddCall(
         "--tool-dialect",
         [options](const std::string& name) {
           options->tool_dialect = name == "none" ? ToolDialect::kNone : FindToolDialect(name);
         },
         "How the model writes calls of tools, such as hermes; none: calls stay text (default "
         "auto: "
         "as its template says)")
      ->OneOf(std::move(words))
      ->TypeName("NAME")
      ->Group(group)
      ->Advanced();
}

// Adds an option that may be given several times, with one value each time.
TableOption* AddRepeatable(OptionTable* app, const std::string& names,
                           std::vector<std::string>* values, const std::string& help) {
  return app->Add(names, values, help)->OneValueEach();
}

void AddAdapterOptions(OptionTable* app, const std::string& group, ModelOptions* options) {
  AddRepeatable(
      app, "--adapter", &options->adapters,
      "Adapter (LoRA) that rows may name: its folder, or a folder of adapters, each under "
      "the name of its own (repeatable)")
      ->Check(CheckAdapterOption)
      ->TypeName("NAME=DIR")
      ->Group(group);
  app->Add("--default-adapter", &options->default_adapter,
           "Adapter of rows that name none (default: none)")
      ->Check(CheckNotEmpty)
      ->TypeName("NAME")
      ->Group(group);
  app->Add("--merge-adapter", &options->merge_adapter,
           "Fold the adapter in DIR into the weights, for all rows")
      ->Check(CheckNotEmpty)
      ->TypeName("DIR")
      ->Group(group)
      ->Advanced();
}

void AddMaxAdapters(OptionTable* app, const std::string& group, EngineOptions* options) {
  app->Add("--max-adapters", &options->max_adapters,
           "Adapters in memory at once; rows of others wait until there is room (default 32)")
      ->Check(IntegerIn(1, 4096))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
}

void AddCpuExperts(OptionTable* app, const std::string& group, EngineOptions* options) {
  app->AddCall(
         "--cpu-experts",
         [options](const std::string& text) {
           options->cpu_experts = ParseCpuExperts(text).value_or(0);
         },
         "With CUDA, keep the experts of N layers in the machine's memory and compute them on the "
         "CPU: N, all, or auto (as few as memory asks for; default 0)")
      ->Check(CheckCpuExperts)
      ->TypeName("N")
      ->Group(group);
}

void AddCpuOptions(OptionTable* app, const std::string& group, EngineOptions* options) {
  app->Add("--threads", &options->threads, "Compute threads (default: the usable cores)")
      ->Check(IntegerIn(1, 1024))
      ->TypeName("N")
      ->Group(group);
  app->Add("--tensor-parallel", &options->tensor_parallel,
           "Divide the model between N ranks, each with its share of the threads (CPU; default 1)")
      ->Check(IntegerIn(1, kRanksMax))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->Add("--cpu-target", &options->cpu_target,
           "Use another instruction set than this machine's best")
      ->EnvName("MINISGL_CPU_TARGET")
      ->Check(CheckNotEmpty)
      ->TypeName("NAME")
      ->Group(group)
      ->Advanced();
  app->AddFlag("--pin-threads", &options->pin_threads, "Pin each compute thread to a core")
      ->Group(group)
      ->Advanced();
  app->Add("--pack-cache", &options->pack_cache,
           "Keep packed weights in DIR, so that later starts load faster (CUDA: timings alone)")
      ->Check(CheckNotEmpty)
      ->TypeName("DIR")
      ->Group(group)
      ->Advanced();
}

// Adds the options of the sizes of steps and of the KV cache.
void AddSizeOptions(OptionTable* app, const std::string& group, EngineOptions* options) {
  const auto add = [app, &group](const char* names, auto* value, const char* type, const char* help,
                                 OptionCheck check) {
    return app->Add(names, value, help)->Check(std::move(check))->TypeName(type)->Group(group);
  };
  app->AddCall(
         "--max-seq-len",
         [options](const std::string& text) {
           options->max_seq_len = text == "auto" ? 0 : ParseNumber<int64_t>(text).value_or(0);
         },
         "Maximum tokens of prompt and answer together, or auto (default auto)")
      ->Check([](const std::string& text) {
        return text == "auto" ? std::string() : IntegerIn(2, 1 << 30)(text);
      })
      ->TypeName("N|auto")
      ->Group(group);
  add("--memory-ratio", &options->memory_ratio, "R",
      "Share of the available memory to use: on the CPU for the KV cache (default 0.25), on CUDA "
      "for everything (default 0.9)",
      NumberIn(0, 1, true));
  add("--max-running-requests", &options->max_running_requests, "N",
      "Maximum requests in a step (default 256)", IntegerIn(1, 4096))
      ->Advanced();
  add("--max-prefill-length", &options->max_prefill_length, "N",
      "Maximum prompt tokens in a step (default 512; on CUDA 8192)", IntegerIn(1, 1 << 20))
      ->Advanced();
  add("--max-step-tokens", &options->max_step_tokens, "N",
      "Maximum tokens in a step, of prompts, answers and drafts together (default: no limit)",
      IntegerIn(1, 1 << 20))
      ->Advanced();
  add("--long-prefill-threshold", &options->long_prefill_threshold, "N",
      "Maximum tokens of one prompt in a step while others wait (default: half the step)",
      IntegerIn(1, 1 << 20))
      ->Advanced();
  add("--num-pages", &options->num_pages, "N", "Pages of the KV cache (default: as many as fit)",
      IntegerIn(1, kOptionMax))
      ->Advanced();
  add("--page-size", &options->page_size, "N", "Tokens in a page: 1, 2, 4, ... 64 (default 16)",
      CheckPageSize)
      ->Advanced();
  app->AddChoice("--kv-dtype", &options->kv_kind, kKvKindChoices,
                 "Type of the KV cache: auto or fp8, which takes half the memory and rounds keys "
                 "and values (default auto)")
      ->TypeName("TYPE")
      ->Group(group)
      ->Advanced();
  add("--encoder-budget", &options->encoder_budget, "N",
      "Maximum tokens of pictures that a step encodes (default: those of prompts; on CUDA 4096)",
      IntegerIn(1, 1 << 20))
      ->Advanced();
  add("--encoder-cache", &options->encoder_cache, "N",
      "Tokens of encoded pictures that are kept for other prompts (default 16384)",
      IntegerIn(1, 1 << 24))
      ->Advanced();
  app->AddFlag("--no-images", &options->no_images,
               "Do not load the part of the model that reads pictures")
      ->Group(group)
      ->Advanced();
}

void AddSchedulerOptions(OptionTable* app, const std::string& group, EngineOptions* options) {
  const auto add = [app, &group](const char* names, auto* value, const auto& choices,
                                 const char* help) {
    app->AddChoice(names, value, choices, help)->TypeName("KIND")->Group(group)->Advanced();
  };
  add("--cache", &options->cache, kCacheChoices, "Prefix cache: radix or naive (default radix)");
  add("--schedule", &options->schedule, kScheduleChoices,
      "Batching policy: mixed or prefill-first (default mixed)");
  add("--admission", &options->admission, kAdmissionChoices,
      "Admission of requests: optimistic or reserve (default optimistic)");
  add("--policy", &options->policy, kPolicyChoices,
      "Queue order: priority or fcfs (default priority)");
  app->AddFlag("--disable-overlap", &options->disable_overlap,
               "Finish each step before planning the next")
      ->Group(group)
      ->Advanced();
}

// Adds the options that end an answer.
void AddLengthOptions(OptionTable* app, const std::string& group, SamplingOptions* options) {
  app->Add("-n,--max-tokens", &options->max_tokens, "Maximum tokens to generate; -1 is no limit")
      ->Check(CheckMaxTokens)
      ->TypeName("N")
      ->Group(group);
  app->Add("--min-tokens", &options->min_tokens, "Suppress end-of-text until N tokens")
      ->Check(InRange(kMinTokens.range))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  AddRepeatable(app, "--stop", &options->stop,
                "End the answer at TEXT, which is left out (repeatable)")
      ->Check(CheckNotEmpty)
      ->TypeName("TEXT")
      ->Group(group);
  app->AddFlag("--ignore-eos", &options->ignore_eos, "Do not stop at end-of-text tokens")
      ->Group(group)
      ->Advanced();
  app->Add("--think-budget", &options->thought_budget,
           "Maximum tokens of reasoning, which is then closed; 0 is none, -1 is no limit")
      ->Check(InRange(FromMinusOne(kMaxTokensRange)))
      ->TypeName("N")
      ->Group(group);
  app->Add("--think-budget-message", &options->thought_message,
           "Put TEXT at the end of reasoning that --think-budget closes")
      ->TypeName("TEXT")
      ->Group(group)
      ->Advanced();
}

}  // namespace

std::optional<int32_t> ParseCpuExperts(const std::string& text) {
  if (text == "auto") return kAutoHostLayers;
  if (text == "all") return std::numeric_limits<int32_t>::max();
  const auto number = ParseNumber<int64_t>(text);
  if (!number || *number < 0 || *number > kOptionMax) return std::nullopt;
  return static_cast<int32_t>(*number);
}

std::optional<DeviceOption> ParseDevice(const std::string& name) {
  constexpr std::string_view kIndexed = "cuda:";
  if (name == "auto") return DeviceOption{.kind = DeviceKind::kAuto, .name = name};
  if (name == "cpu") return DeviceOption{.kind = DeviceKind::kCpu, .name = name};
  if (name == "cuda") return DeviceOption{.kind = DeviceKind::kCuda, .name = name};
  if (!name.starts_with(kIndexed)) return std::nullopt;
  DeviceOption device = {.kind = DeviceKind::kCuda, .indices = {}, .name = name};
  std::string_view left = std::string_view(name).substr(kIndexed.size());
  if (left == "all") return device;
  while (true) {
    const size_t comma = left.find(',');
    const int64_t index = ParseNumber<int64_t>(left.substr(0, comma)).value_or(-1);
    if (index < 0) return std::nullopt;
    device.indices.push_back(static_cast<int>(std::min(index, kOptionMax)));
    if (comma == std::string_view::npos) return device;
    left.remove_prefix(comma + 1);
  }
}

TableOption* AddOutputOption(OptionTable* app, std::string* output, const std::string& what) {
  const auto set = [output](const std::string& file) { *output = file == "-" ? "" : file; };
  return app->AddCall("-o,--output", set, fmt::format("{} FILE (default -, standard output)", what))
      ->Check(CheckNotEmpty)
      ->TypeName("FILE");
}

TableOption* AddPlainOption(OptionTable* app, bool* plain) {
  return app
      ->AddFlag("--plain", plain,
                "On a terminal, show answers as they are: no wrapping, no Markdown")
      ->Advanced();
}

std::string CheckNotEmpty(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

OptionCheck InRange(IntRange range) {
  return [range](const std::string& text) -> std::string {
    const std::optional<int64_t> value = ParseNumber<int64_t>(text);
    if (value && range.Holds(*value)) return "";
    return fmt::format("must be {} (found {})", Describe(range), Visible(text));
  };
}

OptionCheck InRange(NumberRange range) {
  return [range](const std::string& text) -> std::string {
    const std::optional<double> value = ParseNumber<double>(text);
    if (value && range.Holds(*value)) return "";
    return fmt::format("must be {} (found {})", Describe(range), Visible(text));
  };
}

OptionCheck IntegerIn(int64_t low, int64_t high) { return InRange(IntRange{low, high}); }

OptionCheck NumberIn(double low, double high, bool open) {
  return InRange(NumberRange{low, high, open});
}

void AddModelOptions(OptionTable* app, ModelOptions* options) {
  const std::string group = "Model";
  app->Add("-m,--model", &options->model,
           "Model directory, or OWNER/NAME[@REVISION] of one in the hub cache")
      ->EnvName("MINISGL_MODEL")
      ->TypeName("DIR")
      ->Group(group);
  app->Add("--mmproj", &options->projector,
           "Projector file of a GGUF model, with which it reads pictures")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group);
  AddAdapterOptions(app, group, options);
  app->Add("--chat-template", &options->chat_template,
           "Chat template: a file, or the name of one of the model's (default: the model's)")
      ->Check(CheckNotEmpty)
      ->TypeName("NAME|FILE")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--template-content", &options->template_content, kTemplateContentChoices,
                 "Content of messages for the chat template: parts, string or auto (default auto: "
                 "as the template reads it)")
      ->TypeName("FORM")
      ->Group(group)
      ->Advanced();
  AddRepeatable(app, "--template-arg", &options->template_args,
                "Variable for the chat template; a JSON value, else a string (repeatable)")
      ->Check(CheckTemplateArg)
      ->TypeName("K=V")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--think", &options->think, kThinkingChoices,
                 "Reason before answering: on, off or auto (default auto: as the template does)")
      ->TypeName("WHEN")
      ->Group(group);
  AddToolDialect(app, group, options);
  app->AddFlag("--parse-special", &options->parse_special,
               "Allow control tokens in the content of messages")
      ->Group(group)
      ->Advanced();
  app->AddFlag("--no-parse-special", &options->no_parse_special,
               "Read control tokens in raw prompts as text; refuse their ids in rows")
      ->Group(group)
      ->Advanced();
  app->AddFlag("-q,--quiet", &options->quiet, "Print only errors and warnings");
  app->AddFlag("-v,--verbose", &options->verbose, "Print more about what is done");
}

void AddEngineOptions(OptionTable* app, EngineOptions* options) {
  const std::string group = "Engine";
  app->AddCall(
         "--device",
         [options](const std::string& name) {
           options->device = ParseDevice(name).value_or(DeviceOption());
         },
         "Device to run on: auto, cpu, cuda[:N], or cuda:N,N,... or cuda:all: one model on several "
         "GPUs (default auto)")
      ->Check(CheckDevice)
      ->TypeName("NAME")
      ->Group(group);
  app->AddChoice("--dtype", &options->dtype, kDTypeChoices,
                 "Type of the weights: auto, bf16, f16 or f32 (default auto: as stored)")
      ->TypeName("TYPE")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--quantize", &options->quantize, kQuantizationChoices,
                 "Quantize the weights while loading: none, int8 or int4 (default none)")
      ->TypeName("KIND")
      ->Group(group);
  AddSizeOptions(app, group, options);
  AddSchedulerOptions(app, group, options);
  app->Add("--cuda-graph-max-bs", &options->cuda_graph_max_rows,
           "Largest decode batch that runs as a CUDA graph; 0: none (default 256)")
      ->Check(IntegerIn(0, 4096))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->Add("--cuda-graph-max-tokens", &options->cuda_graph_max_tokens,
           "Most tokens of other steps that run as a CUDA graph; 0: none (default 512)")
      ->Check(IntegerIn(0, 4096))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--all-reduce", &options->all_reduce, kAllReduceChoices,
                 "What adds over several GPUs: own kernels, or nccl for long sums (default own)")
      ->TypeName("KIND")
      ->Group(group)
      ->Advanced();
  AddCpuExperts(app, group, options);
  app->AddFlag("--deterministic", &options->deterministic,
               "On CUDA, use kernels whose results do not depend on the batch")
      ->Group(group)
      ->Advanced();
  app->AddFlag(
         "--profile-kernels", &options->profile_kernels,
         "On CUDA, time each kernel and print a table at the end; runs without graphs, slower")
      ->Group(group)
      ->Advanced();
  AddCpuOptions(app, group, options);
  AddMaxAdapters(app, group, options);
  app->AddCall(
         "--speculate",
         [options](const std::string& text) {
           options->drafts = ParseDrafts(text).value_or(DraftOption());
         },
         "Draft up to K tokens a step: from repetitions in the text (ngram:K), by the model's own "
         "layer for it (mtp:K), by a small model (draft:DIR:K), by a head (eagle:DIR:K, "
         "dflash:DIR:K), or what there is (auto; default none)")
      ->Check(CheckDrafts)
      ->TypeName("KIND")
      ->Group(group)
      ->Advanced();
}

void AddReportOptions(OptionTable* app, ReportOptions* options) {
  const std::string group = "Reports";
  app->AddFlag("--stats", &options->stats,
               "Print statistics of the scheduler and the runtime at the end")
      ->Group(group)
      ->Advanced();
  app->Add("--summary", &options->summary,
           "Write statistics of the run to FILE as JSON; - is standard output")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--trace", &options->trace,
           "Write a timeline of the run to FILE (- is standard output), for ui.perfetto.dev or "
           "chrome://tracing")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group)
      ->Advanced();
  app->Add(
         "--events", &options->events,
         "Write what enters and leaves the prefix cache to FILE as it happens, as JSON Lines (- is "
         "standard output)")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group)
      ->Advanced();
}

void AddSamplingOptions(OptionTable* app, SamplingOptions* options) {
  const std::string group = "Sampling (default: the model's, else greedy)";
  const auto add = [app, &group, options](const char* names, const auto& field, const char* type,
                                          const char* help) {
    return app->Add(names, &(options->*field.override_value), help)
        ->Check(InRange(field.range))
        ->TypeName(type)
        ->Group(group);
  };
  add("-t,--temperature", kTemperature, "T", "Temperature; 0 is greedy");
  app->AddCall(
         "--top-k",
         [options](const std::string& text) {
           options->top_k = static_cast<int32_t>(std::max<int64_t>(*ParseNumber<int64_t>(text), 0));
         },
         "Sample from the N likeliest tokens; 0 or -1 is all")
      ->Check(InRange(FromMinusOne(kTopK.range)))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  add("--top-p", kTopP, "P", "Sample from the likeliest tokens with total probability P");
  add("--min-p", kMinP, "P", "Exclude tokens less likely than P times the likeliest")->Advanced();
  add("--repetition-penalty", kRepetitionPenalty, "R",
      "Penalize tokens of prompt and answer; 1 is off")
      ->Advanced();
  add("--presence-penalty", kPresencePenalty, "R",
      "Subtract R from the logits of tokens in the answer")
      ->Advanced();
  add("--frequency-penalty", kFrequencyPenalty, "R",
      "Subtract R times a token's count in the answer from its logit")
      ->Advanced();
  app->AddCall(
         "--seed",
         [options](const std::string& text) {
           options->draws_seed = text == "-1";
           options->seed = ParseNumber<uint64_t>(text);
         },
         "Random seed; -1 draws one")
      ->Check(CheckSeed)
      ->TypeName("N")
      ->Group(group);
  add("--logprobs", kNumLogprobs, "N",
      "Return log-probabilities of each token and of the N likeliest")
      ->Advanced();
  app->AddChoice("--sampling-defaults", &options->sampling_defaults, kSamplingSourceChoices,
                 "Sampling defaults: model (generation_config.json) or neutral (default model)")
      ->TypeName("KIND")
      ->Group(group)
      ->Advanced();
  AddLengthOptions(app, group, options);
  AddGrammarOptions(app, &options->grammar_options);
}

}  // namespace minisgl::load
