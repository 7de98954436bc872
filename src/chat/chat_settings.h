// Sampling parameters of a chat by name, for /set and /params.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/sampling_params.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::chat {

struct ChatSettings {
  SamplingParams sampling;  // without a seed: each turn derives its own from `seed`
  uint64_t seed = 0;
  int64_t max_tokens = -1;  // -1 means up to the end of the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// Takes values from the command line, else from the model, else greedy. `drawn_seed` is used if
// there is no --seed.
ChatSettings MakeChatSettings(const load::SamplingOptions& options,
                              const GenerationConfig& generation, uint64_t drawn_seed);

// Sets `name` (with "-" or "_") to the parsed `value`. kUsage, with the range or the known names,
// without any change.
Status SetParameter(std::string_view name, std::string_view value, ChatSettings* settings);

// Names that SetParameter accepts.
std::vector<std::string> ParameterNames();

// Returns one line "name value" for each parameter, in a fixed order.
std::string ListParameters(const ChatSettings& settings);

}  // namespace minisgl::chat
