// Divides an answer into its parts while it is generated: tags, reasoning, text.
//
// Control tokens are told apart from text that spells them: in what a reader takes, kControlMark
// stands before the spelling of each. Text itself is valid UTF-8, which has no such byte.
//
// Reasoning is recognised at the beginning of an answer (after optional white space), or if the
// prompt has opened it. If its opening tag is a control token, also later in the answer; otherwise
// a later tag is ordinary text. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/text/answer_parts.h"
#include "minisgl/text/channel_scanner.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

inline constexpr char kControlMark = '\xFF';

// Returns the bytes of a token, marked. Of an ordinary token that has the byte of the mark 0xFE
// stands in its place, which no text has either. An unknown id has none.
std::string MarkedBytes(const Tokenizer& tokenizer, TokenId id);

// The tags as they come, control tokens marked; "" for those that a model lacks.
struct ThoughtTags {
  std::string open, close;
  std::string answer;                 // may stand before an answer without reasoning
  std::string name;                   // may follow `open`; no part of the reasoning
  std::string wrap_open, wrap_close;  // may enclose the answer; `wrap_open` may be `answer` too
  bool in_channels = false;  // messages in channels (channel_scanner.h); the rest is unused
};

class ThoughtReader {
 public:
  // `starts_inside`: the prompt has opened the reasoning. `is_closed`: it has closed it again.
  ThoughtReader(ThoughtTags tags, bool starts_inside, bool is_closed);

  // Takes marked text, whole tokens at a time if there are control tokens. Returns what is decided;
  // the concatenated parts do not depend on how the text is divided among calls.
  std::vector<AnswerPart> Push(std::string_view marked);
  // The same for text that ends with the token of `close`.
  std::vector<AnswerPart> PushClose(std::string_view marked);
  // Returns what is held back, at the end of the answer. Reasoning that was not closed is
  // reasoning. No call may follow.
  std::vector<AnswerPart> Finish();

  // True if the token of `close` would end a thought that no tag has opened.
  bool MayCloseBare() const;

 private:
  enum class State : uint8_t { kStart, kName, kInside, kBetween, kText };
  // Remove the decided part of held_; false if more text is needed first.
  bool TakeStart();
  bool TakeName();
  bool TakeInside();
  bool TakeBetween();
  bool TakeText();
  bool TakeWrapped();
  void Open();
  void Take();

  // Take what comes in channels.
  void TakeChannels(std::string_view marked);
  void TakeByte(char byte);
  void TakeMark(std::string_view marked);
  void GiveHeader();

  // Gives away the first `size` bytes of held_.
  void Give(PartKind kind, size_t size);
  void GiveText(PartKind kind, std::string_view marked);
  std::vector<AnswerPart> TakeDone();

  const ThoughtTags tags_;
  const bool starts_inside_, is_closed_;
  State state_ = State::kStart;
  bool any_thought_ = false;
  bool is_wrapped_ = false, was_wrapped_ = false;
  ChannelScanner channels_;
  bool after_header_ = false;  // nothing but white space came of the content
  std::string held_;
  std::vector<AnswerPart> done_;
};

}  // namespace minisgl
