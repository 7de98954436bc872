// Separates a model's reasoning from its answer: detection of the tags, and a streaming splitter.
//
// Reasoning is recognised only at the beginning of an answer (after optional white space), or if
// the prompt has already opened it; a tag later in an answer is ordinary text. White space next to
// a tag belongs to the tag. An answer without reasoning is returned unchanged. A splitter is used
// by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// The template variables that switch reasoning on and off.
inline constexpr const char* kReasoningSwitches[] = {"enable_thinking", "thinking", "reasoning"};

// `open` and `close` enclose the reasoning; both are "" for a model without reasoning. They refer
// to static text.
struct ReasoningTags {
  std::string_view open, close;
  // The prompt ends with `open`, so the answer begins inside the reasoning.
  bool starts_inside = false;
  // Optional tag before an answer without reasoning, not part of the answer; "" if there is none.
  std::string_view answer = "";
  // Optional token that ends the message of the reasoning, before `close`; "" if there is none.
  std::string_view message_end = "";

  bool none() const { return open.empty(); }
  bool operator==(const ReasoningTags& other) const = default;
};

// Returns the tags that the source of `chat` contains. An answer's text has the special tokens in
// these tags only if they are in Prompt::kept_special_ids, so their ids are stored in `*kept`. If
// `kept` is null and the tags need special tokens, returns no tags.
ReasoningTags FindReasoningTags(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                std::vector<TokenId>* kept = nullptr);

// Returns `tags` with starts_inside set for the prompt rendered to `pieces`. Only trusted text can
// open the reasoning, not the content of a message.
ReasoningTags WithPrompt(const ReasoningTags& tags, std::span<const TextPiece> pieces);

// Newly decided output: text known to be reasoning, followed by text known to be the answer.
struct ReasoningPiece {
  std::string reasoning, text;
};

class ReasoningSplitter {
 public:
  ReasoningSplitter() = default;  // everything is text
  explicit ReasoningSplitter(const ReasoningTags& tags);

  // The concatenated results do not depend on how the text is divided among calls.
  ReasoningPiece Push(std::string_view text);
  // Returns the text still held back, at the end of an answer. Unclosed reasoning counts as
  // reasoning. No call may follow.
  ReasoningPiece Finish();

 private:
  enum class State : uint8_t { kStart, kInside, kBetween, kText };
  // Remove the decided part of `held_`; false if more text is needed first.
  bool TakeStart();
  bool TakeInside(ReasoningPiece* piece);
  bool TakeBetween();

  ReasoningTags tags_;
  State state_ = State::kText;
  bool reasoning_began_ = false;
  std::string held_;
};

// Splits a whole answer at once.
ReasoningPiece SplitReasoning(const ReasoningTags& tags, std::string_view text);
// As SplitReasoning, but keeps the white space next to the tags, so that a template given the two
// parts reproduces the answer exactly.
ReasoningPiece SplitReasoningExactly(const ReasoningTags& tags, std::string_view text);

}  // namespace minisgl
