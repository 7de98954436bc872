// The last stage of a prompt's way: how its answers are sampled, what ends them and what they show.
#include <algorithm>
#include <chrono>
#include <utility>

#include "batch/row_limits.h"
#include "batch/row_prompt.h"
#include "minisgl/base/random.h"

namespace minisgl::batch {

namespace {

// Asks for no log-probabilities of the prompt. Without an answer they are those of no token, so
// that the request wants something.
void ScoreNothing(Prompt* prompt) {
  SamplingParams& sampling = prompt->sampling;
  sampling.num_prompt_logprobs = prompt->max_tokens == 0 ? 0 : -1;
  if (prompt->max_tokens == 0) {
    sampling.prompt_logprobs_begin = static_cast<int32_t>(prompt->ids.size());
  }
}

}  // namespace

std::optional<RowError> PromptBuilder::SetSettings(Row* row, CheckedPrompt checked,
                                                   PromptImages images,
                                                   std::vector<Prompt>* prompts) const {
  Prompt prompt;
  prompt.ids = std::move(checked.encoded.ids);
  prompt.extras = std::move(images.extras);
  prompt.marks = std::move(images.marks);
  if (auto error = SetAdapter(*row, &prompt)) return error;
  prompt.stop_token_ids = row->stop_token_ids;
  load::SetAnswerSettings(SettingsOf(*row), &prompt);
  load::SetEndTokens(options_.eos_ids, &prompt);
  SetGrammar(row, &prompt);
  CheckThoughtBudget(row, &prompt);
  prompt.include_stop = row->include_stop;
  prompt.keep_special = row->keep_special;
  if (!row->reasoning.none()) prompt.kept_special_ids = kept_special_ids_;
  if (row->calls != nullptr) {
    prompt.kept_special_ids.insert(prompt.kept_special_ids.end(), call_ids_.begin(),
                                   call_ids_.end());
  }
  prompt.priority = row->priority;
  if (row->timeout_s) prompt.timeout = std::chrono::duration<double>(*row->timeout_s);
  if (auto error = SetTokenLimits(*text_, row, &prompt)) return error;
  if (row->echo || row->num_prompt_logprobs >= 0) ShowPrompt(row, checked.is_cut, &prompt);
  const uint64_t seed = prompt.sampling.seed;
  for (int32_t answer = 1; answer < row->n; ++answer) {
    prompts->push_back(prompt);
    ScoreNothing(&prompt);  // the log-probabilities of the prompt are the same for all answers
    prompt.sampling.seed = AnswerSeed(seed, static_cast<uint64_t>(answer));
  }
  prompts->push_back(std::move(prompt));
  return std::nullopt;
}

load::AnswerSettings PromptBuilder::SettingsOf(const Row& row) const {
  load::AnswerSettings settings = Apply(options_.defaults, row);
  if (!row.seed) {
    const uint64_t seed = options_.defaults.sampling.seed;
    settings.sampling.seed = DeriveSeed(seed, static_cast<uint64_t>(row.index));
  }
  if (const int32_t number = row.answer_number(); number > 0) {
    settings.sampling.seed = AnswerSeed(settings.sampling.seed, static_cast<uint64_t>(number));
  }
  return settings;
}

// A schema is shared with the rows that have the same; nothing constrains an answer of no token.
void PromptBuilder::SetGrammar(Row* row, Prompt* prompt) const {
  if (prompt->max_tokens == 0) prompt->grammar = nullptr;
  if (row->grammar && prompt->grammar != nullptr) {
    const std::shared_ptr<const GrammarText> own = std::move(prompt->grammar);
    prompt->grammar = grammar_texts_.Share(own);
    if (prompt->grammar != own) row->shared_bytes = own->text.size();
  }
  if (!row->may_go_on()) row->grammar.reset();
  prompt->reasoning = row->reasoning;
}

// Warns if the row has a budget for reasoning that its answer cannot have.
void PromptBuilder::CheckThoughtBudget(Row* row, Prompt* prompt) const {
  if (!row->reasoning.none()) return;
  prompt->thought_budget = -1;
  if (row->thought_budget.value_or(-1) < 0) return;
  row->warnings.push_back(
      !reasoning_.none() && row->kind == PromptKind::kMessages
          ? "thinking_token_budget: the answer continues a text after its reasoning; it was ignored"
      : row->kind == PromptKind::kMessages
          ? "thinking_token_budget: the chat template marks no reasoning; it was ignored"
          : "thinking_token_budget: a prompt without the chat template has no reasoning; it was "
            "ignored");
}

// Keeps what the answer shows of the prompt, and asks for the log-probabilities of its tokens.
void PromptBuilder::ShowPrompt(Row* row, bool is_cut, Prompt* prompt) const {
  ShownPrompt& shown = row->shown;
  SamplingParams& sampling = prompt->sampling;
  shown.ids = prompt->ids;
  shown.num_logprobs = sampling.num_logprobs;
  if (row->echo && (is_cut || row->kind == PromptKind::kTokenIds)) {
    shown.text = text_->tokenizer->Decode(shown.ids, /*keep_special=*/false);
  }
  sampling.num_prompt_logprobs = row->num_prompt_logprobs;
  if (row->echo) {
    sampling.num_prompt_logprobs = std::max(sampling.num_prompt_logprobs, sampling.num_logprobs);
  }
  if (sampling.num_prompt_logprobs < 0) ScoreNothing(prompt);
}

}  // namespace minisgl::batch
