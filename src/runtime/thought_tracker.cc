#include "runtime/thought_tracker.h"

#include <algorithm>
#include <span>
#include <utility>

#include "minisgl/text/encode_after.h"
#include "runtime/answer_constraint.h"

namespace minisgl::runtime {
namespace {

using Phase = ThoughtState::Phase;

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string Spelling(std::string_view bytes) {
  std::string text(bytes);
  std::erase(text, kControlMark);
  return text;
}

}  // namespace

ThoughtMarks::ThoughtMarks(const Tokenizer* tokenizer, const ReasoningTags& tags)
    : tokenizer_(tokenizer),
      tags_(TagsOf(tags)),
      close_(tags_.close),
      end_(BytesOfTag(tags.message_end) + close_.wanted()),
      reopening_(ReopeningIds(tags)),
      ends_with_control_(close_.wanted().front() == kControlMark &&
                         end_.wanted().front() == kControlMark) {
  const std::vector<TokenId> close = TokensOf(tags_.close);
  if (close.size() == 1 && tokenizer->IdOf(tags.close) == close.front()) close_id_ = close.front();
}

// Channels are told apart by their control tokens, so that a tokenizer without these has none.
ThoughtTags ThoughtMarks::TagsOf(const ReasoningTags& tags) const {
  ThoughtTags bytes = {BytesOfTag(tags.open),      BytesOfTag(tags.close),
                       BytesOfTag(tags.answer),    std::string(tags.name),
                       BytesOfTag(tags.wrap_open), BytesOfTag(tags.wrap_close)};
  bytes.in_channels = tags.in_channels() && bytes.open.starts_with(kControlMark);
  return bytes;
}

std::string ThoughtMarks::BytesOf(TokenId id) const { return MarkedBytes(*tokenizer_, id); }

bool ThoughtMarks::IsOfTag(TokenId id) const {
  const std::string bytes = BytesOf(id);
  if (!bytes.starts_with(kControlMark)) return false;
  const ChannelMark mark = ChannelMarkOf(std::string_view(bytes).substr(1));
  if (tags_.in_channels && mark != ChannelMark::kOther) return true;
  return (tags_.open + tags_.close).find(bytes) != std::string::npos;
}

// A tag without control tokens is its own text: a tokenizer may put a space before it.
std::string ThoughtMarks::BytesOfTag(std::string_view tag) const {
  const TextPiece piece{std::string(tag), true};
  const Result<std::vector<TokenId>> ids = tokenizer_->Encode(std::span(&piece, 1));
  if (!ids.ok()) return std::string(tag);
  std::string bytes;
  for (const TokenId id : *ids) bytes += BytesOf(id);
  return bytes.find(kControlMark) == std::string::npos ? std::string(tag) : bytes;
}

std::vector<TokenId> ThoughtMarks::TokensOf(std::string_view bytes) const {
  auto ids = EncodeAfter(*tokenizer_, tokenizer_->eos_id(), {TextPiece{Spelling(bytes), true}});
  return ids.ok() ? std::move(ids).value() : std::vector<TokenId>();
}

std::vector<TokenId> ThoughtMarks::ReopeningIds(const ReasoningTags& tags) const {
  std::vector<TokenId> ids = TokensOf(tags.open);
  const bool has_control = open().find(kControlMark) != std::string::npos;
  if (ids.size() > 1 && !has_control) ids.clear();
  return ids;
}

ThoughtTracker::ThoughtTracker(std::shared_ptr<const ThoughtMarks> marks, bool starts_inside)
    : marks_(std::move(marks)), starts_inside_(starts_inside), state_(Begin()) {}

ThoughtState ThoughtTracker::Begin() const {
  ThoughtState state;
  state.channels = ChannelScanner(starts_inside_);
  if (marks_->name().empty()) state.name = -1;
  return state;
}

void ThoughtTracker::Push(TokenId token) {
  if (marks_->tags().in_channels) return PushInChannels(token);
  if (state_.phase == Phase::kText) return PushText(token);
  const bool is_ordinary = state_.phase == Phase::kInside && state_.close == 0 && state_.end == 0 &&
                           state_.name < 0 && marks_->ends_with_control() &&
                           !marks_->tokenizer().IsSpecial(token);
  if (!is_ordinary) return PushThought(token);
  ++state_.num_tokens;
  state_.end_tokens = 0;
}

void ThoughtTracker::PushText(TokenId token) {
  const auto& finder = marks_->reopening();
  if (finder.size() == 0) return;
  state_.reopening = finder.Step(state_.reopening, token);
  if (state_.reopening < finder.size()) return;
  state_.phase = Phase::kInside;
  state_.is_another = true;
  state_.close = state_.end = state_.reopening = 0;
  state_.end_tokens = 0;
  state_.name = Begin().name;
}

// The header of a message belongs to no thought. A thought lasts until another message begins.
void ThoughtTracker::PushInChannels(TokenId token) {
  using Content = ChannelScanner::Content;
  const std::string bytes = marks_->BytesOf(token);
  ChannelScanner& channels = state_.channels;
  const bool is_mark = bytes.starts_with(kControlMark);
  if (is_mark) channels.Step(ChannelMarkOf(std::string_view(bytes).substr(1)));
  for (const char byte : bytes) {
    if (!is_mark) channels.Step(byte);
    state_.end = channels.inside() ? marks_->end().Step(state_.end, byte) : uint16_t{0};
  }
  const bool in_content = channels.phase() == ChannelScanner::Phase::kContent;
  if (!is_mark && in_content && channels.inside()) ++state_.num_tokens;
  state_.end_tokens = state_.end > 0 ? state_.end_tokens + 1 : 0;
  state_.any_text |= in_content && channels.content() != Content::kThought;
  state_.is_another = state_.any_text;
  state_.phase = channels.inside()        ? Phase::kInside
                 : channels.any_message() ? Phase::kText
                                          : Phase::kStart;
}

bool ThoughtTracker::StepName(char byte) {
  if (state_.name < 0) return false;
  const std::string& name = marks_->name();
  const auto place = static_cast<size_t>(state_.name);
  const bool is_name = place < name.size() ? name[place] == byte : byte == '\n';
  state_.name = is_name && place < name.size() ? static_cast<int16_t>(place + 1) : int16_t{-1};
  return is_name;
}

bool ThoughtTracker::StepStart(char byte) {
  if (!state_.any_text && kWhiteSpace.find(byte) != std::string_view::npos) return false;
  state_.any_text = true;
  const auto step = [byte](const std::string& tag, int16_t* matched) {
    const bool goes_on = *matched >= 0 && static_cast<size_t>(*matched) < tag.size() &&
                         tag[static_cast<size_t>(*matched)] == byte;
    *matched = goes_on ? static_cast<int16_t>(*matched + 1) : int16_t{-1};
    return goes_on && static_cast<size_t>(*matched) == tag.size();
  };
  const bool opened = step(marks_->open(), &state_.open);
  const bool answered = step(marks_->answer(), &state_.answer);
  if (opened) {  // also if the prompt had opened it: what came before is no thought
    state_.phase = Phase::kInside;
    state_.name = Begin().name;
    state_.num_tokens = 0;
    state_.close = state_.end = 0;
  } else if (answered) {
    state_.phase = Phase::kText;
    state_.num_tokens = 0;
  } else if (state_.open < 0 && state_.answer < 0) {
    state_.phase = starts_inside_ ? Phase::kInside : Phase::kText;
  }
  return opened;
}

void ThoughtTracker::PushThought(TokenId token) {
  const std::string bytes = marks_->BytesOf(token);
  const auto size = static_cast<int64_t>(bytes.size());
  const int32_t end_tokens = state_.end_tokens;
  const uint16_t end_before = state_.end;
  int64_t begin = 0;  // of the bytes in the thought
  for (int64_t i = 0; i < size; ++i) {
    const char byte = bytes[static_cast<size_t>(i)];
    if (inside()) {
      if (StepName(byte)) begin = i + 1;
      state_.close = marks_->close().Step(state_.close, byte);
      state_.end = marks_->end().Step(state_.end, byte);
      if (state_.close == marks_->close().size()) {
        const bool is_whole = state_.end == marks_->end().size();
        const auto mark = static_cast<int64_t>(is_whole ? state_.end : state_.close);
        state_.phase = Phase::kText;
        state_.num_tokens += (i + 1 - mark > begin ? 1 : 0) - (is_whole ? end_tokens : 0);
        return;
      }
    }
    if (state_.phase != Phase::kStart) continue;
    if (StepStart(byte)) begin = i + 1;
    if (state_.phase == Phase::kText) return;
  }
  if (!inside() || (begin > 0 && begin == size)) {
    state_.end_tokens = 0;
    return;
  }
  ++state_.num_tokens;
  const auto end = static_cast<int64_t>(state_.end);
  const bool goes_on = size > 0 && end == end_before + size;
  state_.end_tokens = goes_on ? end_tokens + 1 : (size > 0 && end == size - begin ? 1 : 0);
}

}  // namespace minisgl::runtime
