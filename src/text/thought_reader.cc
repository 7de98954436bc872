#include "minisgl/text/thought_reader.h"

#include <algorithm>
#include <utility>

namespace minisgl {
namespace {

bool IsControl(std::string_view tag) { return tag.starts_with(kControlMark); }

size_t NumBlanks(std::string_view text) {
  return std::min(text.find_first_not_of(kBesideTags), text.size());
}

size_t NumBlanksBeforeTag(std::string_view text) {
  return text.size() - (text.find_last_not_of(kBesideTags) + 1);
}

// Returns the number of bytes at the end of `text` that may be the beginning of `tag`.
size_t TagBeginning(std::string_view text, std::string_view tag) {
  if (tag.empty()) return 0;
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (tag.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

bool MayBecome(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

bool Begins(std::string_view text, std::string_view tag) {
  return !tag.empty() && text.starts_with(tag);
}

// Calls `on_byte` and `on_mark` for what `marked` holds; a mark with its spelling.
template <typename OnByte, typename OnMark>
void ForEachElement(std::string_view marked, const OnByte& on_byte, const OnMark& on_mark) {
  while (!marked.empty()) {
    if (marked.front() != kControlMark) {
      on_byte(marked.front());
      marked.remove_prefix(1);
      continue;
    }
    const size_t end = marked.find("|>");
    const size_t size = end == std::string_view::npos ? marked.size() : end + 2;
    on_mark(marked.substr(0, size));
    marked.remove_prefix(size);
  }
}

}  // namespace

std::string MarkedBytes(const Tokenizer& tokenizer, TokenId id) {
  if (id < 0 || id >= tokenizer.vocab_size()) return "";
  if (tokenizer.IsSpecial(id)) return kControlMark + tokenizer.PieceText(id);
  std::string bytes = tokenizer.PieceBytes(id);
  std::replace(bytes.begin(), bytes.end(), kControlMark, '\xFE');
  return bytes;
}

ThoughtReader::ThoughtReader(ThoughtTags tags, bool starts_inside, bool is_closed)
    : tags_(std::move(tags)),
      starts_inside_(starts_inside),
      is_closed_(is_closed),
      channels_(starts_inside) {}

void ThoughtReader::GiveText(PartKind kind, std::string_view marked) {
  if (marked.empty()) return;
  if (done_.empty() || done_.back().kind != kind) done_.push_back({kind, ""});
  std::string& text = done_.back().text;
  std::ranges::copy_if(marked, std::back_inserter(text),
                       [](char byte) { return byte != kControlMark; });
}

void ThoughtReader::Give(PartKind kind, size_t size) {
  GiveText(kind, std::string_view(held_).substr(0, size));
  held_.erase(0, size);
}

std::vector<AnswerPart> ThoughtReader::TakeDone() { return std::exchange(done_, {}); }

bool ThoughtReader::MayCloseBare() const {
  return !tags_.in_channels && !any_thought_ && !starts_inside_ && !is_closed_ && !was_wrapped_;
}

std::vector<AnswerPart> ThoughtReader::Push(std::string_view marked) {
  if (tags_.in_channels) {
    TakeChannels(marked);
  } else {
    held_ += marked;
    Take();
  }
  return TakeDone();
}

std::vector<AnswerPart> ThoughtReader::PushClose(std::string_view marked) {
  if (!MayCloseBare() || !marked.ends_with(tags_.close)) return Push(marked);
  held_ += marked;
  Give(PartKind::kText, held_.size() - tags_.close.size());
  Give(PartKind::kBareClose, held_.size());
  any_thought_ = true;
  state_ = State::kBetween;
  return TakeDone();
}

void ThoughtReader::Take() {
  bool goes_on = true;
  while (goes_on) {
    switch (state_) {
      case State::kStart:
        goes_on = TakeStart();
        break;
      case State::kName:
        goes_on = TakeName();
        break;
      case State::kInside:
        goes_on = TakeInside();
        break;
      case State::kBetween:
        goes_on = TakeBetween();
        break;
      case State::kText:
        goes_on = is_wrapped_ ? TakeWrapped() : TakeText();
        break;
    }
  }
}

void ThoughtReader::Open() {
  any_thought_ = true;
  state_ = tags_.name.empty() ? State::kInside : State::kName;
}

// Accepts the opening tag even if the prompt has opened it: some models repeat it.
bool ThoughtReader::TakeStart() {
  const size_t blanks = NumBlanks(held_);
  const std::string_view rest = std::string_view(held_).substr(blanks);
  if (MayBecome(rest, tags_.open) || MayBecome(rest, tags_.answer)) return false;
  if (Begins(rest, tags_.open)) {
    Give(PartKind::kTag, blanks + tags_.open.size());
    Open();
  } else if (Begins(rest, tags_.answer)) {
    is_wrapped_ = was_wrapped_ = tags_.answer == tags_.wrap_open;
    Give(PartKind::kTag, blanks + tags_.answer.size());
    state_ = State::kBetween;
  } else if (starts_inside_) {
    Open();
  } else {
    state_ = State::kText;
  }
  return true;
}

bool ThoughtReader::TakeName() {
  if (MayBecome(held_, tags_.name)) return false;
  if (held_.starts_with(tags_.name)) Give(PartKind::kTag, tags_.name.size());
  state_ = State::kInside;
  return true;
}

bool ThoughtReader::TakeInside() {
  const size_t close = held_.find(tags_.close);
  if (close == std::string::npos) {
    Give(PartKind::kThought, held_.size() - TagBeginning(held_, tags_.close));
    return false;
  }
  Give(PartKind::kThought, close);
  Give(PartKind::kTag, tags_.close.size());
  state_ = State::kBetween;
  return true;
}

bool ThoughtReader::TakeBetween() {
  Give(PartKind::kSpace, NumBlanks(held_));
  if (held_.empty()) return false;
  if (!was_wrapped_ && MayBecome(held_, tags_.wrap_open)) return false;
  if (!was_wrapped_ && Begins(held_, tags_.wrap_open)) {
    Give(PartKind::kTag, tags_.wrap_open.size());
    is_wrapped_ = was_wrapped_ = true;
    return true;
  }
  state_ = State::kText;
  return true;
}

// A control token that opens another thought does so; one that closes none is no text.
bool ThoughtReader::TakeText() {
  const size_t open = IsControl(tags_.open) ? held_.find(tags_.open) : std::string::npos;
  const size_t close = IsControl(tags_.close) ? held_.find(tags_.close) : std::string::npos;
  if (open == close) {
    Give(PartKind::kText, held_.size());
    return false;
  }
  Give(PartKind::kText, std::min(open, close));
  if (open < close) {
    Give(PartKind::kTag, tags_.open.size());
    Open();
  } else {
    Give(PartKind::kTag, tags_.close.size());
  }
  return true;
}

bool ThoughtReader::TakeWrapped() {
  const size_t close = held_.find(tags_.wrap_close);
  if (close == std::string::npos) {
    const size_t certain = held_.size() - TagBeginning(held_, tags_.wrap_close);
    Give(PartKind::kText, certain - NumBlanksBeforeTag(std::string_view(held_).substr(0, certain)));
    return false;
  }
  const size_t end = close - NumBlanksBeforeTag(std::string_view(held_).substr(0, close));
  Give(PartKind::kText, end);
  Give(PartKind::kTag, close - end + tags_.wrap_close.size());
  is_wrapped_ = false;
  state_ = State::kBetween;
  return true;
}

void ThoughtReader::TakeChannels(std::string_view marked) {
  ForEachElement(
      marked, [this](char byte) { TakeByte(byte); },
      [this](std::string_view mark) { TakeMark(mark); });
}

// What stands between messages is held back, until it is known what message begins.
void ThoughtReader::TakeByte(char byte) {
  using Content = ChannelScanner::Content;
  channels_.Step(byte);
  held_ += byte;
  if (channels_.phase() != ChannelScanner::Phase::kContent) return;
  if (channels_.content() == Content::kThought) return Give(PartKind::kThought, held_.size());
  const bool is_space = after_header_ && kBesideTags.find(byte) != std::string_view::npos;
  after_header_ = after_header_ && is_space;
  Give(is_space ? PartKind::kSpace : PartKind::kText, held_.size());
}

void ThoughtReader::TakeMark(std::string_view marked) {
  using Phase = ChannelScanner::Phase;
  const ChannelMark mark = ChannelMarkOf(marked.substr(1));
  const bool in_content = channels_.phase() == Phase::kContent;
  const bool in_thought = channels_.inside();
  channels_.Step(mark);
  held_ += marked;
  if (in_content && channels_.phase() == Phase::kContent) {
    const bool is_mark = mark != ChannelMark::kOther || marked.substr(1) == "<|constrain|>";
    const PartKind kind = in_thought ? PartKind::kThought : PartKind::kText;
    return Give(is_mark ? PartKind::kTag : kind, held_.size());
  }
  if (mark == ChannelMark::kEnd) return Give(PartKind::kTag, held_.size());
  if (channels_.phase() == Phase::kContent) GiveHeader();
}

// A call stays text, as the model wrote it.
void ThoughtReader::GiveHeader() {
  after_header_ = channels_.content() == ChannelScanner::Content::kAnswer;
  if (channels_.content() != ChannelScanner::Content::kCall) {
    return Give(PartKind::kTag, held_.size());
  }
  constexpr std::string_view kRole = "\xFF<|start|>assistant";
  if (held_.starts_with(kRole)) Give(PartKind::kTag, kRole.size());
  Give(PartKind::kText, held_.size());
}

std::vector<AnswerPart> ThoughtReader::Finish() {
  if (tags_.in_channels) {
    const bool is_text = channels_.phase() == ChannelScanner::Phase::kStart;
    Give(is_text ? PartKind::kText : PartKind::kTag, held_.size());
  } else {
    const bool inside = state_ == State::kInside || state_ == State::kName ||
                        (state_ == State::kStart && starts_inside_);
    Give(inside ? PartKind::kThought : PartKind::kText, held_.size());
  }
  return TakeDone();
}

}  // namespace minisgl
