#include "cli/options.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl {
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
CLI::Option* AddRepeatable(CLI::App* app, const std::string& names,
                           std::vector<std::string>* values, const std::string& help) {
  return app->add_option(names, *values, help)->allow_extra_args(false);
}

void AddCpuOptions(CLI::App* app, const std::string& group, EngineOptions* options) {
  app->add_option("--threads", options->threads, "Threads that compute (default: the usable cores)")
      ->check(IntegerIn(1, 1024))
      ->type_name("N")
      ->group(group);
  app->add_option("--cpu-target", options->cpu_target,
                  "A lower instruction set than this machine's best, for tests")
      ->envname("MINISGL_CPU_TARGET")
      ->check(CheckNotEmpty)
      ->type_name("NAME")
      ->group(group);
  app->add_flag("--pin-threads", options->pin_threads, "Keep each thread on a core of its own")
      ->group(group);
  app->add_option("--pack-cache", options->pack_cache,
                  "Keep packed weights in DIR, so that the next start maps them (CPU only)")
      ->check(CheckNotEmpty)
      ->type_name("DIR")
      ->group(group);
}

}  // namespace

CLI::Option* AddOutputOption(CLI::App* app, std::string* output, const std::string& what) {
  const auto set = [output](const std::string& file) { *output = file == "-" ? "" : file; };
  return app
      ->add_option_function<std::string>("-o,--output", set,
                                         fmt::format("{} FILE (default -, standard output)", what))
      ->check(CheckNotEmpty)
      ->type_name("FILE");
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

void AddModelOptions(CLI::App* app, ModelOptions* options) {
  const std::string group = "Model";
  app->add_option("-m,--model", options->model,
                  "Model directory, or OWNER/NAME of one in the hub cache")
      ->envname("MINISGL_MODEL")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--chat-template", options->chat_template,
                  "Chat template: a file, or the name of one of the model's (default: the model's)")
      ->check(CheckNotEmpty)
      ->type_name("NAME|FILE")
      ->group(group);
  AddRepeatable(app, "--template-arg", &options->template_args,
                "Variable for the chat template; a JSON value, else a string (repeatable)")
      ->check(CheckTemplateArg)
      ->type_name("K=V")
      ->group(group);
  app->add_option("--think", options->think,
                  "Whether the model reasons before it answers: on, off or auto (the template's)")
      ->check(OneOf({"on", "off", "auto"}))
      ->type_name("WHEN")
      ->group(group);
  app->add_flag("--parse-special", options->parse_special,
                "Let the content of messages hold control tokens")
      ->group(group);
  app->add_flag("-q,--quiet", options->quiet, "Say errors and warnings only");
  app->add_flag("-v,--verbose", options->verbose, "Say more about what is done");
}

void AddEngineOptions(CLI::App* app, EngineOptions* options) {
  const std::string group = "Engine";
  const auto add = [app, &group](const char* names, auto* value, const char* type, const char* help,
                                 OptionCheck check) {
    app->add_option(names, *value, help)->check(std::move(check))->type_name(type)->group(group);
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
  app->add_option_function<std::string>(
         "--max-seq-len",
         [options](const std::string& text) {
           options->max_seq_len = text == "auto" ? 0 : ToInteger(text).value_or(0);
         },
         "Longest prompt and answer together, or auto (default auto)")
      ->check([](const std::string& text) {
        return text == "auto" ? std::string() : IntegerIn(2, 1 << 30)(text);
      })
      ->type_name("N|auto")
      ->group(group);
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
  app->add_flag("--disable-overlap", options->disable_overlap,
                "Finish each step before the next is planned")
      ->group(group);
  add("--cuda-graph-max-bs", &options->cuda_graph_max_rows, "N",
      "Largest decode batch that runs as a CUDA graph; 0: none (default 256)", IntegerIn(0, 4096));
  app->add_flag("--deterministic", options->deterministic,
                "On CUDA, kernels whose results do not depend on the batch")
      ->group(group);
  AddCpuOptions(app, group, options);
  app->add_option_function<std::string>(
         "--speculate",
         [options](const std::string& text) {
           options->max_drafts = static_cast<int32_t>(ParseSpeculate(text));
         },
         "Guess up to K tokens a step from what the text repeats: ngram:K, or none (default none)")
      ->check(CheckSpeculate)
      ->type_name("KIND")
      ->group(group);
}

void AddReportOptions(CLI::App* app, ReportOptions* options) {
  const std::string group = "Reports";
  app->add_flag("--stats", options->stats, "Print figures of scheduler and runtime at the end")
      ->group(group);
  app->add_option("--summary", options->summary,
                  "Write the figures to FILE as JSON; - is standard output")
      ->check(CheckNotEmpty)
      ->type_name("FILE")
      ->group(group);
  app->add_option("--trace", options->trace,
                  "Write what happened when to FILE (- is standard output), for ui.perfetto.dev or "
                  "chrome://tracing")
      ->check(CheckNotEmpty)
      ->type_name("FILE")
      ->group(group);
}

void AddSamplingOptions(CLI::App* app, SamplingOptions* options) {
  const std::string group = "Sampling (default: as the model says, then greedy)";
  const auto add = [app, &group](const char* names, auto* value, const char* type, const char* help,
                                 OptionCheck check) {
    app->add_option(names, *value, help)->check(std::move(check))->type_name(type)->group(group);
  };
  add("-t,--temperature", &options->temperature, "T", "Temperature; 0 is greedy", NumberIn(0, 100));
  add("--top-k", &options->top_k, "N", "Draw from the N likeliest tokens; 0 is all",
      IntegerIn(0, kOptionMax));
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
  add("--seed", &options->seed, "N", "Seed of random numbers", IntegerIn(0, kInt64Max));
  add("-n,--max-tokens", &options->max_tokens, "N", "Most tokens of an answer",
      IntegerIn(1, kOptionMax));
  add("--min-tokens", &options->min_tokens, "N", "No end of the answer before N tokens",
      IntegerIn(0, kOptionMax));
  AddRepeatable(app, "--stop", &options->stop, "End the answer before TEXT (repeatable)")
      ->check(CheckNotEmpty)
      ->type_name("TEXT")
      ->group(group);
  app->add_flag("--ignore-eos", options->ignore_eos, "Do not stop at end tokens")->group(group);
  add("--logprobs", &options->logprobs, "N",
      "Give log-probabilities of each token and of the N likeliest", IntegerIn(0, 20));
  add("--sampling-defaults", &options->sampling_defaults, "KIND",
      "model: take generation_config.json; neutral: leave it out (default model)",
      OneOf({"model", "neutral"}));
}

}  // namespace minisgl
