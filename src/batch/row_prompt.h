// Converts a checked row into the input of the runtime: token ids, sampling parameters, and stop
// conditions.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch/conversation.h"
#include "batch/grammar_texts.h"
#include "batch/row.h"
#include "batch/run_notes.h"
#include "load/model_loader.h"
#include "load/sampling.h"
#include "minisgl/engine/engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/text_model.h"

namespace minisgl::batch {

// Longest prompt and answer together that `limits` allow; the prompt alone must be shorter.
int64_t ContextCapacity(const EngineLimits& limits);

struct PromptBuilderOptions {
  // Of rows. A row without a seed gets a hash of `sampling.seed` and the row's index.
  load::SamplingDefaults defaults;
  std::vector<TokenId> eos_ids;
  bool truncate_left = false;          // cut a prompt that is too long instead of rejecting it
  bool chat = false;                   // a row's prompt is a user message, not text to complete
  std::optional<std::string> system;   // with `chat`: the system message before it
  std::optional<std::string> prefill;  // the beginning of every answer to messages
  bool hide_reasoning = false;
  bool row_metrics = false;
  std::optional<double> timeout_s;  // of rows that set none
};

// Passes row->reasoning_effort to the template as a variable in template_kwargs: the level if the
// template knows levels, else its reasoning switch. row->verbosity is passed as it is. A template
// that reads neither is a note of the row; one that does not read its tools or documents is a note
// and a warning. Returns an error if template_kwargs has the variable.
std::optional<RowError> ApplySwitches(const TextModel& text, Row* row);

// Returns what is said of rows with `field`, reasoning_effort, verbosity, tools or documents, if
// the template of `text` does not read it; "" if it does.
std::string MissingSwitch(const TextModel& text, const std::string& field);

// Returns the messages of a chat: a system message if one is given, and a user message.
Json ChatMessages(const std::optional<std::string>& system, std::string text);

// True if the row's prompt is completed as it is even if the model has a chat template. In a user's
// first file such a prompt is usually meant as a question.
bool IsRawPrompt(const Row& row);
// Warning about such rows, to be logged once. `count`: number of rows, if known.
std::string RawPromptsWarning(const std::string& file, std::optional<int64_t> count);

// With --no-parse-special: returns an error if the row's ids contain a control token.
std::optional<RowError> CheckControlIds(const TextModel& text, const Row& row);

// Thread-safe.
class PromptBuilder {
 public:
  // `text` must outlive this.
  PromptBuilder(const TextModel* text, const EngineLimits& limits, PromptBuilderOptions options);

  // Builds one prompt for each of row->n answers, or returns an error.
  // - Changes to the prompt become warnings of the row; its reasoning tags are set.
  // - A prompt that leaves no room for an answer is length_exceeded, or is cut if truncate_left.
  // - The parts of the row that only the prompt needs are moved out of it.
  // - If `cancelled` is not null and becomes true during the call, an error is returned soon after.
  // - If `conversation` is not null, the prompt goes on with it: of a row of a session, or with
  //   all_turns, whose next turn it is. It has the prompt afterwards.
  std::optional<RowError> Build(Row* row, std::vector<Prompt>* prompts,
                                const std::atomic<bool>* cancelled = nullptr,
                                Conversation* conversation = nullptr) const;

  int64_t capacity() const { return capacity_; }
  // The length of an answer to the row is limited by the model's generation_config.json.
  bool LimitsByModel(const Row& row) const;
  const TextModel& text() const { return *text_; }

 private:
  // Collects the ids of a prompt as they are produced; keeps only the last ones, as many as a
  // prompt may have.
  struct Ids {
    std::vector<TokenId> last;
    std::optional<TokenId> first;
    int64_t total = 0;
    bool is_whole = true;  // if false, there may be more than `total`
  };
  void Add(std::span<const TokenId> ids, Ids* to) const;
  std::optional<RowError> PromptIds(Row* row, const std::atomic<bool>* cancelled, Ids* ids) const;
  std::optional<RowError> ConversationIds(Row* row, const std::atomic<bool>* cancelled,
                                          Conversation* conversation, Ids* ids) const;
  std::optional<RowError> EncodePieces(const Row& row, std::vector<TextPiece> pieces,
                                       const std::atomic<bool>* cancelled, Ids* ids) const;
  Result<std::vector<TextPiece>> Pieces(Row* row, const std::atomic<bool>* cancelled) const;
  // `begins`: no row of its conversation came before.
  void AskInChat(Row* row, bool begins) const;
  std::optional<RowError> CheckIds(const Row& row) const;
  std::optional<RowError> CheckMinTokens(const Row& row,
                                         const load::AnswerSettings& settings) const;
  // Builds the one prompt of a row to score: its prompt and its text, encoded together.
  std::optional<RowError> BuildScored(Row* row, std::vector<Prompt>* prompts,
                                      const std::atomic<bool>* cancelled) const;
  // Puts the beginning of every answer behind the row's messages, unless it has its own.
  void AddPrefill(Row* row) const;
  void SetGrammar(Row* row, Prompt* prompt) const;
  void CheckThoughtBudget(Row* row, Prompt* prompt) const;
  // The most tokens of the row's prompt: one less than the context, if an answer follows.
  int64_t PromptMax(const Row& row) const;
  std::optional<RowError> CheckLength(const Row& row, int64_t length, bool is_whole) const;
  void ShowPrompt(Row* row, const std::vector<TokenId>& ids, bool is_cut, Prompt* prompt) const;
  void Truncate(Row* row, int64_t max_tokens, Ids* ids) const;
  load::AnswerSettings SettingsOf(const Row& row) const;

  const TextModel* text_;
  const int64_t vocab_size_;
  const int64_t capacity_;
  const PromptBuilderOptions options_;
  ReasoningTags reasoning_;
  std::vector<TokenId> kept_special_ids_;  // of the reasoning tags
  mutable GrammarTexts grammar_texts_;     // thread-safe
  mutable RunNotes notes_;                 // thread-safe
};

}  // namespace minisgl::batch
