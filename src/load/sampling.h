// Settings of answers that set none themselves: options of the command line over
// generation_config.json over neutral values.
#pragma once

#include <cstdint>
#include <string>

#include "load/answer_settings.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// The name of the file, as an origin and in messages.
inline constexpr const char* kGenerationConfig = "generation_config.json";

struct SamplingDefaults : AnswerSettings {
  // The option or file that set max_tokens and sampling.min_tokens, for messages; "" if none did.
  std::string max_tokens_origin, min_tokens_origin;
  std::string note;  // what generation_config.json changed, in one line; "" if nothing
  // The file's settings that hold because no option sets them.
  AnswerOverrides from_model;
};

// The note about those settings of generation_config.json that an answer with the settings `own`
// has from there, without max_tokens: that matters to an answer only if it is cut. "" if none.
std::string NoteForAnswer(const SamplingDefaults& defaults, const AnswerOverrides& own);

// The model's values apply where no option is given, and not at all with --sampling-defaults
// neutral. The result is greedy if generation_config.json has `do_sample: false`, or neither
// do_sample nor a temperature; `do_sample: true` without a temperature is temperature 1.
SamplingDefaults ResolveSamplingDefaults(const SamplingOptions& options,
                                         const GenerationConfig& generation);

// A higher temperature is noted: answers are then nearly random words.
inline constexpr double kUsualTemperatureMax = 2;
std::string NoteOfTemperature(double temperature);  // "" for a usual one

// Returns kUsage if the options contradict each other. Notes what is allowed but hardly meant.
Status CheckSamplingOptions(const SamplingOptions& options);

// Warns if --think-budget has no effect because the template marks no reasoning.
void WarnOfThoughtBudget(const SamplingOptions& options, const TextModel& text);

// Reads options->grammar and compiles it, so that a bad one ends the program before the model is
// loaded. kBadInput names the file and the place in it.
Status TakeGrammar(SamplingOptions* options);

// Returns a random number.
uint64_t DrawSeed();

}  // namespace minisgl::load
