// How an answer is sampled and what ends it, and which of these settings one source sets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/sampling_params.h"

namespace minisgl {
struct GrammarText;  // grammar/grammar.h
struct Prompt;       // runtime/runtime.h
}  // namespace minisgl

namespace minisgl::load {

// What an answer must be.
struct AnswerGrammar {
  std::shared_ptr<const GrammarText> text;  // null: anything
  std::string file;                         // from which it was read; "" if from none
};

// Settings of the answers of a run or a conversation, and after Apply of one answer.
struct AnswerSettings {
  SamplingParams sampling;  // `seed`: base seed, from which each answer without one derives its own
  int64_t max_tokens = -1;  // -1: to the end of the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int64_t thought_budget = -1;  // most tokens of the model's reasoning; -1: no limit of its own
  std::string thought_message;  // put before the end of reasoning that reaches the limit
  AnswerGrammar grammar;
};

// The settings that one source sets: generation_config.json, options or a row. The rest are left to
// the sources below it.
struct AnswerOverrides : SamplingOverrides {
  std::optional<int64_t> max_tokens;  // -1: to the end of the context
  std::optional<std::vector<std::string>> stop;
  std::optional<bool> ignore_eos;
  std::optional<int64_t> thought_budget;
  std::optional<std::string> thought_message;
  std::optional<AnswerGrammar> grammar;
};

// Returns `base` with the settings that `overrides` sets.
AnswerSettings Apply(AnswerSettings base, const AnswerOverrides& overrides);

// Sets the members of *prompt that `settings` has.
void SetAnswerSettings(AnswerSettings settings, Prompt* prompt);

}  // namespace minisgl::load
