// From a checked row to what the runtime is given: token ids, sampling parameters, and the ends of
// the answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batch/row.h"
#include "load/model_loader.h"
#include "load/sampling.h"
#include "minisgl/engine/engine.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::batch {

// The longest prompt and answer that `limits` allow together; a prompt is to be shorter.
int64_t ContextCapacity(const EngineLimits& limits);

struct PromptBuilderOptions {
  load::SamplingDefaults defaults;
  std::vector<TokenId> eos_ids;
  uint64_t seed = 0;           // a row without its own gets a function of this and its index
  bool truncate_left = false;  // cut a prompt that does not fit, instead of refusing it
  bool chat = false;           // a row's prompt is what a user says, and not what is completed
  std::optional<std::string> system;  // with `chat`: what stands before it
  bool hide_reasoning = false;
  bool row_metrics = false;
};

// Tells the template what row->reasoning_effort asks for, as a variable of template_kwargs: the
// level where it knows levels, else its switch. unsupported_field where it knows neither.
std::optional<RowError> ApplyReasoningEffort(const load::TextModel& text, Row* row);

// What a user says, after a system message if one is given.
Json ChatMessages(const std::optional<std::string>& system, std::string text);

// Whether the row is completed as it is although the model may have a chat template: that of a
// first file, which is meant as questions, mostly.
bool IsRawPrompt(const Row& row);
// What is to be said of that once: `count` if it is known.
std::string RawPromptsWarning(const std::string& file, std::optional<int64_t> count);

// Under --no-parse-special: an error where the row's ids hold a control token.
std::optional<RowError> CheckControlIds(const load::TextModel& text, const Row& row);

// Thread-safe.
class PromptBuilder {
 public:
  // `text` outlives this.
  PromptBuilder(const load::TextModel* text, const EngineLimits& limits,
                PromptBuilderOptions options);

  // One prompt for each of row->n answers, or why there is none. What was changed on the way is a
  // warning of the row, which learns what of its answers will be reasoning. A prompt that leaves no
  // room for an answer is length_exceeded, or is cut where truncate_left. Takes what only the
  // prompt needed out of the row. A row that is being worked on is an error soon after `*cancelled`
  // (may be null) became true.
  std::optional<RowError> Build(Row* row, std::vector<Prompt>* prompts,
                                const std::atomic<bool>* cancelled = nullptr) const;

  int64_t capacity() const { return capacity_; }

 private:
  // The ids of a prompt as they come: the last of them are kept, as many as any prompt may have.
  struct Ids {
    std::vector<TokenId> last;
    std::optional<TokenId> first;
    int64_t total = 0;
    bool is_whole = true;  // else there may be more than `total`
  };
  void Add(std::span<const TokenId> ids, Ids* to) const;
  std::optional<RowError> PromptIds(Row* row, const std::atomic<bool>* cancelled, Ids* ids) const;
  std::optional<RowError> EncodePieces(const Row& row, std::vector<TextPiece> pieces,
                                       const std::atomic<bool>* cancelled, Ids* ids) const;
  Result<std::vector<TextPiece>> Pieces(Row* row, const std::atomic<bool>* cancelled) const;
  void AskInChat(Row* row) const;
  std::optional<RowError> CheckIds(const Row& row) const;
  std::optional<RowError> CheckMinTokens(const Row& row, const Prompt& prompt) const;
  std::optional<RowError> CheckLength(int64_t length, bool is_whole) const;
  void Truncate(Row* row, int64_t max_tokens, Ids* ids) const;
  SamplingParams Sampling(const Row& row) const;

  const load::TextModel* text_;
  const int64_t vocab_size_;
  const int64_t capacity_;
  const PromptBuilderOptions options_;
  ReasoningTags reasoning_;
  std::vector<TokenId> spelled_ids_;  // of its tags
};

}  // namespace minisgl::batch
