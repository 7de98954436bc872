// How the answers of a chat are sampled, by name: what /set changes and /params shows.
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
  SamplingParams sampling;  // without its seed, which each turn derives from `seed`
  uint64_t seed = 0;
  int64_t max_tokens = -1;  // -1: to the end of the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// What the command line says, else the model, else greedy. `drawn_seed` serves where no --seed was
// given.
ChatSettings MakeChatSettings(const load::SamplingOptions& options,
                              const GenerationConfig& generation, uint64_t drawn_seed);

// Sets `name` (with "-" or "_") to what `value` spells. kUsage naming the range, or the names there
// are; then nothing has changed.
Status SetParameter(std::string_view name, std::string_view value, ChatSettings* settings);

// The names that SetParameter knows.
std::vector<std::string> ParameterNames();

// One "name value" a line, in a fixed order.
std::string ListParameters(const ChatSettings& settings);

}  // namespace minisgl::chat
