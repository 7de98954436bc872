// Where an answer stands with respect to its model's thoughts, token by token, and how many tokens
// were thought.
//
// A thought begins and ends as ReasoningSplitter sees it, on the bytes of tokens instead of their
// text: a tag with control tokens is never its spelling in ordinary ones. A thought may begin again
// later in the answer if its opening tag is one token or has a control token; a tag of several
// ordinary tokens is text there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/text/channel_scanner.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/thought_reader.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::runtime {

// Finds a sequence in a stream. A state is the number of elements at the end of the stream that
// begin the sequence; 0 before the first.
template <typename Sequence>
class SequenceFinder {
 public:
  using Element = typename Sequence::value_type;

  explicit SequenceFinder(Sequence wanted) : wanted_(std::move(wanted)), shorter_(wanted_.size()) {
    for (size_t i = 1; i < wanted_.size(); ++i) shorter_[i] = Step(shorter_[i - 1], wanted_[i]);
  }
  // The state after one more element. REQUIRES a sequence that is not empty.
  uint16_t Step(uint16_t state, Element element) const {
    if (state == size()) state = shorter_[state - 1];
    while (state > 0 && wanted_[state] != element) state = shorter_[state - 1];
    return wanted_[state] == element ? static_cast<uint16_t>(state + 1) : state;
  }
  size_t size() const { return wanted_.size(); }
  const Sequence& wanted() const { return wanted_; }

 private:
  Sequence wanted_;
  std::vector<uint16_t> shorter_;  // after i + 1 elements: the longest other state
};

// The tags of a model in its tokens. Immutable; thread-safe.
class ThoughtMarks {
 public:
  // `tokenizer` outlives it. REQUIRES tags that are there.
  ThoughtMarks(const Tokenizer* tokenizer, const ReasoningTags& tags);

  // The bytes of a token; of a control token kControlMark and its spelling. No other token has the
  // mark: in its place stands 0xFE, which no text has either.
  std::string BytesOf(TokenId id) const;
  // The bytes of the tokens of a tag.
  std::string BytesOfTag(std::string_view tag) const;
  // The tokens of such bytes, not as the beginning of a text. Empty if they cannot be encoded.
  std::vector<TokenId> TokensOf(std::string_view bytes) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // For a reader of answers' texts.
  const ThoughtTags& tags() const { return tags_; }
  const std::string& open() const { return tags_.open; }
  const std::string& answer() const { return tags_.answer; }
  // The channel's name that may follow open(); "": there is none.
  const std::string& name() const { return tags_.name; }
  // The token that is the closing tag; -1: it has several. Ids past the vocabulary are no tokens.
  TokenId close_id() const { return close_id_; }
  // True for a control token of the tags, or of the messages in channels.
  bool IsOfTag(TokenId id) const;
  // The bytes that end a thought; and all that a model writes from the end of a thought to the
  // beginning of its answer, which ends with them.
  const SequenceFinder<std::string>& close() const { return close_; }
  const SequenceFinder<std::string>& end() const { return end_; }
  // The tokens that begin a thought later in an answer; none if none do.
  const SequenceFinder<std::vector<TokenId>>& reopening() const { return reopening_; }
  // Only a control token can be the first of end() and of close().
  bool ends_with_control() const { return ends_with_control_; }

 private:
  ThoughtTags TagsOf(const ReasoningTags& tags) const;
  std::vector<TokenId> ReopeningIds(const ReasoningTags& tags) const;

  const Tokenizer* tokenizer_;
  ThoughtTags tags_;
  TokenId close_id_ = -1;
  SequenceFinder<std::string> close_, end_;
  SequenceFinder<std::vector<TokenId>> reopening_;
  bool ends_with_control_;
};

// Copied often: it has no memory of its own.
struct ThoughtState {
  enum class Phase : uint8_t {
    kStart,   // nothing but white space, or the beginning of a tag
    kInside,  // in a thought
    kText,    // after it
  };
  Phase phase = Phase::kStart;
  bool any_text = false;    // kStart: more than white space
  bool is_another = false;  // a thought began after a text
  // kStart: bytes of the tag that the answer begins with; -1: it begins with another text.
  int16_t open = 0, answer = 0;
  uint16_t close = 0, end = 0, reopening = 0;  // of the finders
  // The last so many tokens are whole parts of what may become the end of the thought. They count
  // as thought until then.
  int32_t end_tokens = 0;
  int64_t num_tokens = 0;   // of all thoughts so far, without their tags
  int16_t name = 0;         // bytes of the channel's name that the thought begins with; -1: past it
  ChannelScanner channels;  // used instead of most of the above by a model that writes in channels
};

class ThoughtTracker {
 public:
  // `starts_inside`: the prompt has opened the thought.
  ThoughtTracker(std::shared_ptr<const ThoughtMarks> marks, bool starts_inside);

  void Push(TokenId token);

  // The state before the first token.
  ThoughtState Begin() const;

  // True if the last token is in a thought, or the thought has no token yet.
  bool inside() const {
    return state_.phase == ThoughtState::Phase::kInside ||
           (state_.phase == ThoughtState::Phase::kStart && starts_inside_);
  }
  // True between the thought and what the model says next: where it names a message's channel.
  bool in_header() const {
    return marks_->tags().in_channels && state_.channels.phase() != ChannelScanner::Phase::kContent;
  }
  // True if no text came yet that is not in the thought.
  bool in_first() const { return inside() && !state_.is_another; }
  int64_t num_tokens() const { return state_.num_tokens; }
  // The same with those that may turn out to be the end of the thought.
  int64_t num_so_far() const {
    return state_.num_tokens + (marks_->tags().in_channels ? state_.end_tokens : 0);
  }
  const ThoughtMarks& marks() const { return *marks_; }

  const ThoughtState& state() const { return state_; }
  void set_state(const ThoughtState& state) { state_ = state; }
  // The answer's text begins, whatever was found.
  void SetText() { state_.phase = ThoughtState::Phase::kText; }

 private:
  // Takes a byte at the start of the answer: of a tag, white space or neither. True if it completes
  // the opening tag.
  bool StepStart(char byte);
  void PushThought(TokenId token);
  void PushText(TokenId token);
  void PushInChannels(TokenId token);
  // Takes a byte of a thought; true if it belongs to the name of its channel.
  bool StepName(char byte);

  std::shared_ptr<const ThoughtMarks> marks_;
  bool starts_inside_;
  ThoughtState state_;
};

}  // namespace minisgl::runtime
