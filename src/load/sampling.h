// How answers are sampled where a row does not say: options of the command line over
// generation_config.json over neutral values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/sampling_params.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

struct SamplingDefaults {
  SamplingParams params;              // `seed` is 0: who asks derives it
  std::optional<int64_t> max_tokens;  // unset or -1: to the end of the context
  // Who set max_tokens and params.min_tokens, for messages.
  std::string max_tokens_origin, min_tokens_origin;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string note;  // what generation_config.json changed, in one line; "" where nothing
};

// The model's values count where the options leave a field open (none under --sampling-defaults
// neutral). Greedy where the model says `do_sample: false`, or neither do_sample nor a temperature;
// `do_sample: true` alone is temperature 1.
SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation);

// What sampling options must agree on: kUsage where they do not.
Status CheckSamplingOptions(const SamplingOptions& options);

// A number that nobody has seen before.
uint64_t DrawSeed();

}  // namespace minisgl::load
