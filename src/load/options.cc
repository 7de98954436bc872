#include "load/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

constexpr int64_t kOptionMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

std::optional<int64_t> ToInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ToNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// From 0 to 2^64 - 1.
std::optional<uint64_t> ToSeed(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string CheckSeed(const std::string& text) {
  if (text == "-1" || ToSeed(text)) return "";
  return fmt::format("must be an integer from 0 to {}, or -1 (found {})",
                     std::numeric_limits<uint64_t>::max(), Visible(text));
}

std::string CheckMaxTokens(const std::string& text) {
  const int64_t value = ToInteger(text).value_or(0);
  if (value == -1 || (value >= 1 && value <= kOptionMax)) return "";
  return fmt::format("must be an integer from 1 to {}, or -1 (found {})", kOptionMax,
                     Visible(text));
}

std::string CheckDevice(const std::string& text) {
  const std::string_view device = text;
  if (device == "auto" || device == "cpu" || device == "cuda") return "";
  if (device.starts_with("cuda:") && ToInteger(device.substr(5)).value_or(-1) >= 0) return "";
  return fmt::format("must be auto, cpu, cuda or cuda:N (found {})", Visible(text));
}

std::string CheckPageSize(const std::string& text) {
  const int64_t value = ToInteger(text).value_or(0);
  if (value >= 1 && value <= 64 && (value & (value - 1)) == 0) return "";
  return fmt::format("must be a power of two from 1 to 64 (found {})", Visible(text));
}

constexpr int64_t kDraftsMax = 16;
constexpr std::string_view kNgram = "ngram:";

// The drafts that --speculate asks for: 0 for none; -1 where it spells neither.
int64_t ParseSpeculate(std::string_view text) {
  if (text == "none") return 0;
  if (!text.starts_with(kNgram)) return -1;
  const int64_t drafts = ToInteger(text.substr(kNgram.size())).value_or(-1);
  return drafts >= 1 && drafts <= kDraftsMax ? drafts : -1;
}

std::string CheckSpeculate(const std::string& text) {
  if (ParseSpeculate(text) >= 0) return "";
  return fmt::format("must be none or ngram:K with K from 1 to {} (found {})", kDraftsMax,
                     Visible(text));
}

std::string CheckTemplateArg(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0) return "";
  return fmt::format("must be NAME=VALUE (found {})", Visible(text));
}

// An option given several times, one value each.
TableOption* AddRepeatable(OptionTable* app, const std::string& names,
                           std::vector<std::string>* values, const std::string& help) {
  return app->Add(names, values, help)->OneValueEach();
}

void AddCpuOptions(OptionTable* app, const std::string& group, EngineOptions* options) {
  app->Add("--threads", &options->threads, "Threads that compute (default: the usable cores)")
      ->Check(IntegerIn(1, 1024))
      ->TypeName("N")
      ->Group(group);
  app->Add("--cpu-target", &options->cpu_target,
           "A lower instruction set than this machine's best, for tests")
      ->EnvName("MINISGL_CPU_TARGET")
      ->Check(CheckNotEmpty)
      ->TypeName("NAME")
      ->Group(group);
  app->AddFlag("--pin-threads", &options->pin_threads, "Keep each thread on a core of its own")
      ->Group(group);
  app->Add("--pack-cache", &options->pack_cache,
           "Keep packed weights in DIR, so that the next start reads them (CPU only)")
      ->Check(CheckNotEmpty)
      ->TypeName("DIR")
      ->Group(group);
}

}  // namespace

TableOption* AddOutputOption(OptionTable* app, std::string* output, const std::string& what) {
  const auto set = [output](const std::string& file) { *output = file == "-" ? "" : file; };
  return app->AddCall("-o,--output", set, fmt::format("{} FILE (default -, standard output)", what))
      ->Check(CheckNotEmpty)
      ->TypeName("FILE");
}

std::string CheckNotEmpty(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

OptionCheck IntegerIn(int64_t low, int64_t high) {
  return [low, high](const std::string& text) -> std::string {
    const std::optional<int64_t> value = ToInteger(text);
    if (value && *value >= low && *value <= high) return "";
    if (high == kInt64Max) {
      return fmt::format("must be an integer of at least {} (found {})", low, Visible(text));
    }
    return fmt::format("must be an integer from {} to {} (found {})", low, high, Visible(text));
  };
}

OptionCheck NumberIn(double low, double high, bool open) {
  return [low, high, open](const std::string& text) -> std::string {
    const std::optional<double> value = ToNumber(text);
    if (value && std::isfinite(*value) && (open ? *value > low : *value >= low) && *value <= high) {
      return "";
    }
    return fmt::format("must be a number {} {} {} {} (found {})", open ? "above" : "from", low,
                       open ? "and at most" : "to", high, Visible(text));
  };
}

OptionCheck OneOf(std::vector<std::string> names) {
  return [names = std::move(names)](const std::string& text) -> std::string {
    for (const std::string& name : names) {
      if (text == name) return "";
    }
    return fmt::format("must be one of {} (found {})", fmt::join(names, ", "), Visible(text));
  };
}

void AddModelOptions(OptionTable* app, ModelOptions* options) {
  const std::string group = "Model";
  app->Add("-m,--model", &options->model, "Model directory, or OWNER/NAME of one in the hub cache")
      ->EnvName("MINISGL_MODEL")
      ->TypeName("DIR")
      ->Group(group);
  app->Add("--chat-template", &options->chat_template,
           "Chat template: a file, or the name of one of the model's (default: the model's)")
      ->Check(CheckNotEmpty)
      ->TypeName("NAME|FILE")
      ->Group(group);
  AddRepeatable(app, "--template-arg", &options->template_args,
                "Variable for the chat template; a JSON value, else a string (repeatable)")
      ->Check(CheckTemplateArg)
      ->TypeName("K=V")
      ->Group(group);
  app->Add("--think", &options->think,
           "Whether the model reasons before it answers: on, off or auto (the template's)")
      ->Check(OneOf({"on", "off", "auto"}))
      ->TypeName("WHEN")
      ->Group(group);
  app->AddFlag("--parse-special", &options->parse_special,
               "Let the content of messages hold control tokens")
      ->Group(group);
  app->AddFlag("--no-parse-special", &options->no_parse_special,
               "Take control tokens that a raw prompt spells as text; refuse their ids in rows")
      ->Group(group);
  app->AddFlag("-q,--quiet", &options->quiet, "Say errors and warnings only");
  app->AddFlag("-v,--verbose", &options->verbose, "Say more about what is done");
}

void AddEngineOptions(OptionTable* app, EngineOptions* options) {
  const std::string group = "Engine";
  const auto add = [app, &group](const char* names, auto* value, const char* type, const char* help,
                                 OptionCheck check) {
    app->Add(names, value, help)->Check(std::move(check))->TypeName(type)->Group(group);
  };
  add("--device", &options->device, "NAME", "Where it runs: auto, cpu or cuda[:N] (default auto)",
      CheckDevice);
  add("--dtype", &options->dtype, "TYPE",
      "Type of the weights: auto, bf16, f16 or f32 (default auto: as stored)",
      OneOf({"auto", "bf16", "f16", "f32"}));
  add("--quantize", &options->quantize, "KIND",
      "Quantize the weights as they are loaded: none or int8 (CPU only; default none)",
      OneOf({"none", "int8"}));
  add("--max-running-requests", &options->max_running_requests, "N",
      "Most requests in one step (default 256)", IntegerIn(1, 4096));
  add("--max-prefill-length", &options->max_prefill_length, "N",
      "Most prompt tokens in one step (default 512, on CUDA 8192)", IntegerIn(1, 1 << 20));
  add("--long-prefill-threshold", &options->long_prefill_threshold, "N",
      "Most tokens of one prompt in one step while others wait (default half of the step's)",
      IntegerIn(1, 1 << 20));
  app->AddCall(
         "--max-seq-len",
         [options](const std::string& text) {
           options->max_seq_len = text == "auto" ? 0 : ToInteger(text).value_or(0);
         },
         "Longest prompt and answer together, or auto (default auto)")
      ->Check([](const std::string& text) {
        return text == "auto" ? std::string() : IntegerIn(2, 1 << 30)(text);
      })
      ->TypeName("N|auto")
      ->Group(group);
  add("--memory-ratio", &options->memory_ratio, "R",
      "Share of the available memory: for keys and values on the CPU (default 0.25), for "
      "everything "
      "on CUDA (default 0.9)",
      NumberIn(0, 1, true));
  add("--num-pages", &options->num_pages, "N", "Pages of the KV pool (default: planned)",
      IntegerIn(1, kOptionMax));
  add("--page-size", &options->page_size, "N", "Tokens in a page: 1, 2, 4, ... 64 (default 16)",
      CheckPageSize);
  add("--cache", &options->cache, "KIND", "Prefix cache: radix or naive (default radix)",
      OneOf({"radix", "naive"}));
  add("--schedule", &options->schedule, "KIND",
      "What shares a step: mixed (default) or prefill-first", OneOf({"mixed", "prefill-first"}));
  add("--admission", &options->admission, "KIND",
      "When a request may start: optimistic (default) or reserve",
      OneOf({"optimistic", "reserve"}));
  add("--policy", &options->policy, "KIND", "Who is next: priority (default) or fcfs",
      OneOf({"priority", "fcfs"}));
  app->AddFlag("--disable-overlap", &options->disable_overlap,
               "Finish each step before the next is planned")
      ->Group(group);
  add("--cuda-graph-max-bs", &options->cuda_graph_max_rows, "N",
      "Largest decode batch that runs as a CUDA graph; 0: none (default 256)", IntegerIn(0, 4096));
  app->AddFlag("--deterministic", &options->deterministic,
               "On CUDA, kernels whose results do not depend on the batch")
      ->Group(group);
  AddCpuOptions(app, group, options);
  app->AddCall(
         "--speculate",
         [options](const std::string& text) {
           options->max_drafts = static_cast<int32_t>(ParseSpeculate(text));
         },
         "Guess up to K tokens a step from what the text repeats: ngram:K, or none (default none)")
      ->Check(CheckSpeculate)
      ->TypeName("KIND")
      ->Group(group);
}

void AddReportOptions(OptionTable* app, ReportOptions* options) {
  const std::string group = "Reports";
  app->AddFlag("--stats", &options->stats, "Print figures of scheduler and runtime at the end")
      ->Group(group);
  app->Add("--summary", &options->summary,
           "Write the figures to FILE as JSON; - is standard output")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--trace", &options->trace,
           "Write what happened when to FILE (- is standard output), for ui.perfetto.dev or "
           "chrome://tracing")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group);
}

void AddSamplingOptions(OptionTable* app, SamplingOptions* options) {
  const std::string group = "Sampling (default: as the model says, then greedy)";
  const auto add = [app, &group](const char* names, auto* value, const char* type, const char* help,
                                 OptionCheck check) {
    app->Add(names, value, help)->Check(std::move(check))->TypeName(type)->Group(group);
  };
  add("-t,--temperature", &options->temperature, "T", "Temperature; 0 is greedy", NumberIn(0, 100));
  app->AddCall(
         "--top-k",
         [options](const std::string& text) {
           options->top_k = static_cast<int32_t>(std::max<int64_t>(*ToInteger(text), 0));
         },
         "Draw from the N likeliest tokens; 0 or -1 is all")
      ->Check(IntegerIn(-1, kOptionMax))
      ->TypeName("N")
      ->Group(group);
  add("--top-p", &options->top_p, "P", "Draw from the likeliest tokens that make up P",
      NumberIn(0, 1, true));
  add("--min-p", &options->min_p, "P", "Leave out tokens below P times the likeliest",
      NumberIn(0, 1));
  add("--repetition-penalty", &options->repetition_penalty, "R",
      "Make tokens of prompt and answer less likely; 1 is off", NumberIn(0, 100, true));
  add("--presence-penalty", &options->presence_penalty, "R",
      "Subtract R from tokens that the answer holds", NumberIn(-2, 2));
  add("--frequency-penalty", &options->frequency_penalty, "R",
      "Subtract R for each time that the answer holds a token", NumberIn(-2, 2));
  app->AddCall(
         "--seed",
         [options](const std::string& text) {
           options->draws_seed = text == "-1";
           options->seed = ToSeed(text);
         },
         "Seed of random numbers; -1 draws one")
      ->Check(CheckSeed)
      ->TypeName("N")
      ->Group(group);
  add("-n,--max-tokens", &options->max_tokens, "N", "Most tokens of an answer; -1 is no limit",
      CheckMaxTokens);
  add("--min-tokens", &options->min_tokens, "N", "No end of the answer before N tokens",
      IntegerIn(0, kOptionMax));
  AddRepeatable(app, "--stop", &options->stop, "End the answer before TEXT (repeatable)")
      ->Check(CheckNotEmpty)
      ->TypeName("TEXT")
      ->Group(group);
  app->AddFlag("--ignore-eos", &options->ignore_eos, "Do not stop at end tokens")->Group(group);
  add("--logprobs", &options->logprobs, "N",
      "Give log-probabilities of each token and of the N likeliest", IntegerIn(0, 20));
  add("--sampling-defaults", &options->sampling_defaults, "KIND",
      "model: take generation_config.json; neutral: leave it out (default model)",
      OneOf({"model", "neutral"}));
}

}  // namespace minisgl::load
