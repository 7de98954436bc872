// Sampling parameters of rows that set none: options of the command line over
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
  SamplingParams params;              // `seed` is 0: each request derives its own
  std::optional<int64_t> max_tokens;  // unset or -1: to the end of the context
  // The option or file that set max_tokens and params.min_tokens, for messages.
  std::string max_tokens_origin, min_tokens_origin;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string note;  // what generation_config.json changed, in one line; "" if nothing
};

// The model's values apply to fields that the options leave open, and not at all with
// --sampling-defaults neutral. Greedy if generation_config.json has `do_sample: false`, or neither
// do_sample nor a temperature; `do_sample: true` alone is temperature 1.
SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation);

// Returns kUsage if the options contradict each other.
Status CheckSamplingOptions(const SamplingOptions& options);

// Returns a random number.
uint64_t DrawSeed();

}  // namespace minisgl::load
