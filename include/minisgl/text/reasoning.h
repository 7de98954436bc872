// Separates a model's reasoning from its answer: detection of the tags, and a streaming splitter.
//
// White space next to a tag belongs to the tag. An answer without reasoning is returned unchanged.
// Where reasoning is recognised: thought_reader.h. A splitter is used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/answer_parts.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/thought_reader.h"
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
  // Optional token that ends the message of the reasoning, before `close`; "" if there is none. A
  // model that has it writes messages in channels (channel_scanner.h).
  std::string_view message_end = "";
  // Optional word behind `open` that is no part of the reasoning: the name of its channel.
  std::string_view name = "";
  // Optional tags that may enclose the answer, not part of it.
  std::string_view wrap_open = "", wrap_close = "";
  // The prompt has closed the reasoning: there is none.
  bool is_closed = false;

  bool none() const { return open.empty(); }
  bool in_channels() const { return !message_end.empty(); }
  bool operator==(const ReasoningTags& other) const = default;
};

// Returns the tags that the source of `chat` contains. An answer's text has the special tokens in
// these tags only if they are in Prompt::kept_special_ids, so their ids are stored in `*kept`. If
// `kept` is null and the tags need special tokens, returns no tags.
ReasoningTags FindReasoningTags(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                std::vector<TokenId>* kept = nullptr);

// Returns `tags` with starts_inside and is_closed set for the prompt rendered to `pieces`. Only
// trusted text can open or close the reasoning, not the content of a message.
ReasoningTags WithPrompt(const ReasoningTags& tags, std::span<const TextPiece> pieces);

// Divides text whose control tokens are spelled, such as that of a message. What the runtime says
// of an answer's parts (Event::parts) is exact: it knows the tokens.
class ReasoningSplitter {
 public:
  // Without tags everything is text.
  explicit ReasoningSplitter(const ReasoningTags& tags);

  // The concatenated results do not depend on how the text is divided among calls.
  ReasoningPiece Push(std::string_view text);
  // Returns the text still held back, at the end of an answer. Unclosed reasoning counts as
  // reasoning. No call may follow.
  ReasoningPiece Finish();

 private:
  ReasoningPiece Take(const std::vector<AnswerPart>& parts);

  ThoughtReader reader_;
  PieceMaker maker_;
};

// Splits a whole answer at once.
ReasoningPiece SplitReasoning(const ReasoningTags& tags, std::string_view text);
// As SplitReasoning, but keeps the white space next to the tags, so that a template given the two
// parts reproduces the answer exactly.
ReasoningPiece SplitReasoningExactly(const ReasoningTags& tags, std::string_view text);
// Returns the parts of such a text.
TextParts PartsOfText(const ReasoningTags& tags, std::string_view text);

}  // namespace minisgl
