// Settings of a chat's answers by name, for /set and /params.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/answer_settings.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::chat {

// Takes values from the command line, else from the model, else greedy. `drawn_seed` is used if
// there is no --seed.
load::AnswerSettings MakeChatSettings(const load::SamplingOptions& options,
                                      const GenerationConfig& generation, uint64_t drawn_seed);

// Sets `name` (with "-" or "_") to the parsed `value`. kUsage, with the range or the known names,
// without any change; a grammar that cannot be read or compiled has the error of that.
Status SetParameter(std::string_view name, std::string_view value, load::AnswerSettings* settings);

// Names that SetParameter accepts.
std::vector<std::string> ParameterNames();

// The parameters whose value is the name of a file.
std::vector<std::string> FileParameterNames();

// Returns one line "name range" for each parameter, in the same order.
std::string ParameterRanges();

// Returns one line "name value" for each parameter, in a fixed order.
std::string ListParameters(const load::AnswerSettings& settings);

}  // namespace minisgl::chat
