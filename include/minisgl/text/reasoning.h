// A model's reasoning apart from its answer: which tags stand around it, and a splitter for text
// that comes in pieces.
//
// Reasoning counts where an answer begins with it, after white space at most, or where the prompt
// has opened it already; a tag that an answer speaks of later is text. White space beside a tag
// belongs to the tag. An answer without reasoning is given as it is, byte for byte. Used by one
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// What templates call their switch of reasoning.
inline constexpr const char* kReasoningSwitches[] = {"enable_thinking", "thinking", "reasoning"};

// `open` and `close` stand around the reasoning; both "" for a model that has none. They point to
// static text.
struct ReasoningTags {
  std::string_view open, close;
  // The prompt ends with `open`: an answer begins inside.
  bool starts_inside = false;
  // What may stand before an answer without reasoning, and is no part of it; "" for nothing.
  std::string_view answer = "";

  bool none() const { return open.empty(); }
  bool operator==(const ReasoningTags& other) const = default;
};

// The tags that `chat` speaks of. Control tokens among them are left out of an answer's text unless
// they are asked for (Prompt::spelled_ids): they go into `*spelled`, and where that is null there
// are no tags.
ReasoningTags FindReasoningTags(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                std::vector<TokenId>* spelled = nullptr);

// `tags`, and whether the prompt that was rendered to `pieces` leaves them open. What a message
// says opens nothing.
ReasoningTags WithPrompt(const ReasoningTags& tags, std::span<const TextPiece> pieces);

// Text that is certain to belong to one of the two; the reasoning stands before the text.
struct ReasoningPiece {
  std::string reasoning, text;
};

class ReasoningSplitter {
 public:
  ReasoningSplitter() = default;  // everything is text
  explicit ReasoningSplitter(const ReasoningTags& tags);

  // The pieces joined are the same however the text is cut.
  ReasoningPiece Push(std::string_view text);
  // What was held back, at the end of an answer. Reasoning that was not closed is reasoning.
  // Nothing may follow.
  ReasoningPiece Finish();

 private:
  enum class State : uint8_t { kStart, kInside, kBetween, kText };
  // Take what is certain off `held_`; false where more has to come first.
  bool TakeStart();
  bool TakeInside(ReasoningPiece* piece);
  bool TakeBetween();

  ReasoningTags tags_;
  State state_ = State::kText;
  bool reasoning_began_ = false;
  std::string held_;
};

// The whole of an answer at once.
ReasoningPiece SplitReasoning(const ReasoningTags& tags, std::string_view text);
// The same with the white space beside the tags kept: what a template must be given so that the
// tags and the two parts spell the answer again.
ReasoningPiece SplitReasoningExactly(const ReasoningTags& tags, std::string_view text);

}  // namespace minisgl
