#include "load/sampling.h"

#include <fmt/core.h>

#include <random>

#include "minisgl/sampling_fields.h"

namespace minisgl::load {
namespace {

std::optional<double> ModelTemperature(const GenerationConfig& generation) {
  if (generation.do_sample.has_value() && !*generation.do_sample) return 0.0;
  if (generation.temperature) return generation.temperature;
  return generation.do_sample ? std::optional<double>(1.0) : std::nullopt;
}

// What the model sets that `options` leave open.
SamplingOverrides ModelOverrides(const GenerationConfig& generation) {
  SamplingOverrides overrides = generation;
  overrides.temperature = ModelTemperature(generation);
  return overrides;
}

// "temperature 0.6, top_k 20": the model's parameters that options leave open and that differ from
// the neutral ones.
std::string DescribeModelOverrides(const SamplingOverrides& options,
                                   const SamplingOverrides& model) {
  const SamplingParams neutral;
  std::string text;
  const auto add = [&](const auto& field) {
    const auto& value = model.*field.override_value;
    if (options.*field.override_value || !value || *value == neutral.*field.param) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", field.name, *value);
  };
  add(kTemperature);
  add(kTopK);
  add(kTopP);
  add(kMinP);
  add(kRepetitionPenalty);
  return text;
}

}  // namespace

SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation) {
  SamplingDefaults defaults;
  if (options.sampling_defaults == SamplingSource::kModel) {
    const SamplingOverrides model = ModelOverrides(generation);
    defaults.params = Apply(defaults.params, model);
    std::string changed = DescribeModelOverrides(options, model);
    if (generation.max_new_tokens && !options.max_tokens) {
      defaults.max_tokens = generation.max_new_tokens;
      defaults.max_tokens_origin = "generation_config.json";
      changed +=
          fmt::format("{}max_tokens {}", changed.empty() ? "" : ", ", *generation.max_new_tokens);
    }
    if (!changed.empty()) {
      defaults.note = fmt::format(
          "defaults of generation_config.json: {} (--sampling-defaults neutral leaves them out)",
          changed);
    }
  }
  defaults.params = Apply(defaults.params, options);
  defaults.params.seed = 0;
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
