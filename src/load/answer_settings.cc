#include "load/answer_settings.h"

#include <utility>

#include "minisgl/runtime/runtime.h"

namespace minisgl::load {

AnswerSettings Apply(AnswerSettings base, const AnswerOverrides& overrides) {
  base.sampling = Apply(std::move(base.sampling), static_cast<const SamplingOverrides&>(overrides));
  if (overrides.max_tokens) base.max_tokens = *overrides.max_tokens;
  if (overrides.stop) base.stop = *overrides.stop;
  if (overrides.ignore_eos) base.ignore_eos = *overrides.ignore_eos;
  if (overrides.thought_budget) base.thought_budget = *overrides.thought_budget;
  if (overrides.thought_message) base.thought_message = *overrides.thought_message;
  if (overrides.grammar) base.grammar = *overrides.grammar;
  return base;
}

void SetAnswerSettings(AnswerSettings settings, Prompt* prompt) {
  prompt->sampling = std::move(settings.sampling);
  prompt->max_tokens = settings.max_tokens;
  prompt->stop = std::move(settings.stop);
  prompt->ignore_eos = settings.ignore_eos;
  prompt->thought_budget = settings.thought_budget;
  prompt->thought_message = std::move(settings.thought_message);
  prompt->grammar = std::move(settings.grammar.text);
}

}  // namespace minisgl::load
