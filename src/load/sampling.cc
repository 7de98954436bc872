#include "load/sampling.h"

#include <fmt/core.h>

#include <random>

namespace minisgl::load {
namespace {

// What the model says, as far as the options leave it open, each value it changes named in `note`.
class ModelValues {
 public:
  template <typename T, typename Given, typename Model>
  void Take(const char* name, const std::optional<Given>& given, const std::optional<Model>& model,
            T* value) {
    if (given || !model || static_cast<Model>(*value) == *model) return;
    *value = static_cast<T>(*model);
    Say(name, fmt::format("{}", *model));
  }
  void Say(const char* name, const std::string& value) {
    note_ += fmt::format("{}{} {}", note_.empty() ? "" : ", ", name, value);
  }
  const std::string& note() const { return note_; }

 private:
  std::string note_;
};

std::optional<double> ModelTemperature(const GenerationConfig& generation) {
  if (generation.do_sample.has_value() && !*generation.do_sample) return 0.0;
  if (generation.temperature) return generation.temperature;
  return generation.do_sample ? std::optional<double>(1.0) : std::nullopt;
}

}  // namespace

SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation) {
  SamplingDefaults defaults;
  SamplingParams& params = defaults.params;
  if (options.sampling_defaults == SamplingSource::kModel) {
    ModelValues model;
    model.Take("temperature", options.temperature, ModelTemperature(generation),
               &params.temperature);
    model.Take("top_k", options.top_k, generation.top_k, &params.top_k);
    model.Take("top_p", options.top_p, generation.top_p, &params.top_p);
    model.Take("min_p", options.min_p, generation.min_p, &params.min_p);
    model.Take("repetition_penalty", options.repetition_penalty, generation.repetition_penalty,
               &params.repetition_penalty);
    if (generation.max_new_tokens && !options.max_tokens) {
      defaults.max_tokens = generation.max_new_tokens;
      defaults.max_tokens_origin = "generation_config.json";
      model.Say("max_tokens", fmt::format("{}", *generation.max_new_tokens));
    }
    if (!model.note().empty()) {
      defaults.note = fmt::format(
          "defaults of generation_config.json: {} (--sampling-defaults neutral "
          "leaves them out)",
          model.note());
    }
  }
  params.temperature = options.temperature.value_or(params.temperature);
  params.top_k = options.top_k.value_or(params.top_k);
  params.top_p = options.top_p.value_or(params.top_p);
  params.min_p = options.min_p.value_or(params.min_p);
  params.repetition_penalty = options.repetition_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = options.presence_penalty.value_or(0.0);
  params.frequency_penalty = options.frequency_penalty.value_or(0.0);
  params.num_logprobs = options.logprobs.value_or(-1);
  params.min_tokens = options.min_tokens.value_or(0);
  if (options.min_tokens) defaults.min_tokens_origin = "--min-tokens";
  if (options.max_tokens) {
    defaults.max_tokens = options.max_tokens;
    defaults.max_tokens_origin = "--max-tokens";
  }
  defaults.stop = options.stop;
  defaults.ignore_eos = options.ignore_eos;
  return defaults;
}

Status CheckSamplingOptions(const SamplingOptions& options) {
  const int64_t max_tokens = options.max_tokens.value_or(-1);
  if (max_tokens < 0 || options.min_tokens.value_or(0) <= max_tokens) return Status();
  return UsageError("--min-tokens is more than --max-tokens (found {} and {})", *options.min_tokens,
                    max_tokens);
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;
}

}  // namespace minisgl::load
