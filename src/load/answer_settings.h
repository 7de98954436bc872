// How an answer is sampled and what ends it, and which of these settings one source sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/sampling_params.h"

namespace minisgl {
struct Prompt;  // runtime/runtime.h
}  // namespace minisgl

namespace minisgl::load {

// Settings of the answers of a run or a conversation, and after Apply of one answer.
struct AnswerSettings {
  SamplingParams sampling;  // `seed`: base seed, from which each answer without one derives its own
  int64_t max_tokens = -1;  // -1: to the end of the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

// The settings that one source sets: generation_config.json, options or a row. The rest are left to
// the sources below it.
struct AnswerOverrides : SamplingOverrides {
  std::optional<int64_t> max_tokens;  // -1: to the end of the context
  std::optional<std::vector<std::string>> stop;
  std::optional<bool> ignore_eos;
};

// Returns `base` with the settings that `overrides` sets.
AnswerSettings Apply(AnswerSettings base, const AnswerOverrides& overrides);

// Sets the members of *prompt that `settings` has.
void SetAnswerSettings(AnswerSettings settings, Prompt* prompt);

}  // namespace minisgl::load
