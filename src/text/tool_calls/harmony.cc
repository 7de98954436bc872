// Harmony, the format of gpt-oss: a call is a message with a recipient.
//
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
//
// The recipient may stand before the channel, too. Arguments are given as they are, whatever they
// are. A message in the channel "commentary" without a recipient is meant for the reader of the
// answer, as one in "final" is; messages in other channels are reasoning.
#include <algorithm>
#include <utility>

#include "minisgl/text/channel_scanner.h"
#include "minisgl/text/thought_reader.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_span.h"
#include "text/tool_calls/sectioned.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kHarmonyMarks[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                              "<|constrain|>", "<|end|>",     "<|call|>",
                                              "<|return|>"};
constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kRecipient = "to=", kFunctions = "functions.";
// A header that has more bytes is content.
constexpr size_t kHarmonyHeaderMax = 4096;

// The word behind "to="; "" if there is none.
std::string_view RecipientOf(std::string_view header) {
  const size_t at = header.find(kRecipient);
  if (at == std::string_view::npos) return "";
  if (at > 0 && header[at - 1] != ' ' && header[at - 1] != '>') return "";
  const std::string_view rest = header.substr(at + kRecipient.size());
  return rest.substr(0, rest.find_first_of(" <\t\r\n"));
}

// The channel that the last header in `tags` names.
std::string_view ChannelOf(std::string_view tags) {
  const size_t at = tags.rfind(kChannel);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = WithoutSpace(tags.substr(at + kChannel.size()));
  return rest.substr(0, rest.find_first_of(" <\t\r\n"));
}

class HarmonyReader : public CallReader {
 public:
  ToolCallPiece Push(std::string_view text, const TextParts& parts) override {
    ToolCallPiece piece;
    steps_ += text.size();
    for (const TextPart& part : parts) {
      Take(part.kind, text.substr(0, part.size), &piece);
      text.remove_prefix(std::min(part.size, text.size()));
    }
    if (!text.empty()) Take(PartKind::kText, text, &piece);
    return piece;
  }

  ToolCallPiece Finish() override {
    ToolCallPiece piece;
    EndText(&piece);
    piece.content += blanks_;
    return piece;
  }

  uint64_t num_steps() const override { return steps_; }

 private:
  enum class State : uint8_t {
    kBegin,  // of text that may be the header of a call
    kContent,
    kCall,  // its arguments
  };

  void Take(PartKind kind, std::string_view text, ToolCallPiece* piece) {
    if (kind == PartKind::kTag) return TakeTag(text, piece);
    in_tag_ = false;
    if (kind == PartKind::kText) return TakeText(text, piece);
    const bool is_preamble = kind == PartKind::kThought && ChannelOf(tags_) == "commentary";
    if (is_preamble) return AddContent(text, piece);
    piece->reasoning += thoughts_.Push(text, {{kind, text.size()}}).reasoning;
  }

  // Tags within a message end nothing.
  void TakeTag(std::string_view text, ToolCallPiece* piece) {
    thoughts_.Push(text, {{PartKind::kTag, text.size()}});
    if (!in_tag_) tags_.clear();
    in_tag_ = true;
    tags_ += text;
    const bool is_inner = tags_ == kMessage || tags_ == kConstrain;
    if (is_inner || MayBecomeMark(tags_, kMessage) || MayBecomeMark(tags_, kConstrain)) return;
    EndText(piece);
    blanks_.clear();
    state_ = tags_.ends_with(kMessage) ? State::kContent : State::kBegin;
    begins_message_ = true;
  }

  void TakeText(std::string_view text, ToolCallPiece* piece) {
    if (state_ == State::kContent) return AddContent(text, piece);
    held_ += text;
    if (state_ == State::kCall) return;
    const size_t begin = SkipSpace(held_, 0);
    const std::string_view rest = std::string_view(held_).substr(begin);
    const bool is_header = rest.starts_with(kChannel) || rest.starts_with(kRecipient);
    const bool may_be = MayBecomeMark(rest, kChannel) || MayBecomeMark(rest, kRecipient);
    const size_t end = std::string_view(held_).substr(0, kHarmonyHeaderMax).find(kMessage);
    if (is_header && end != std::string::npos) {
      recipient_ = std::string(RecipientOf(std::string_view(held_).substr(0, end)));
      held_.erase(0, end + kMessage.size());
      state_ = State::kCall;
      return;
    }
    if (may_be || (is_header && held_.size() < kHarmonyHeaderMax)) return;
    state_ = State::kContent;
    AddContent(std::exchange(held_, std::string()), piece);
  }

  // At the end of a message, or of the answer.
  void EndText(ToolCallPiece* piece) {
    if (state_ == State::kBegin && !held_.empty()) {
      AddContent(std::exchange(held_, std::string()), piece);
    }
    if (state_ != State::kCall) return;
    state_ = State::kBegin;
    std::string arguments(WithoutSpace(std::exchange(held_, std::string())));
    std::string_view name = recipient_;
    if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    const bool is_reader = name == "user" || name == "assistant" || name == "all";
    if (name.empty() || is_reader) return AddContent(arguments, piece);
    if (arguments.empty() || arguments == "null") arguments = "{}";
    piece->calls.push_back({std::string(name), std::move(arguments), ""});
  }

  // A line break divides messages, and white space at their ends is dropped, except at the end of
  // the answer.
  void AddContent(std::string_view text, ToolCallPiece* piece) {
    if (begins_message_) text.remove_prefix(SkipSpace(text, 0));
    if (text.empty()) return;
    if (std::exchange(begins_message_, false) && any_content_) piece->content += '\n';
    any_content_ = true;
    const size_t end = text.find_last_not_of(kJsonSpace) + 1;
    if (end > 0) piece->content += std::exchange(blanks_, std::string());
    piece->content += text.substr(0, end);
    blanks_ += text.substr(end);
  }

  State state_ = State::kBegin;
  std::string held_;
  std::string recipient_;
  std::string tags_;  // the tag so far, or the last one
  bool in_tag_ = false;
  bool begins_message_ = false, any_content_ = false;
  PieceMaker thoughts_;
  std::string blanks_;  // at the end of the content so far
  uint64_t steps_ = 0;
};

// `text` with kControlMark before each control token.
std::string Marked(std::string_view text) {
  std::string marked;
  size_t header = 0, scanned = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view mark =
        text[at] == '<' ? MarkAt(text.substr(at), kHarmonyMarks) : std::string_view();
    if (mark.empty()) {
      marked += text[at++];
      continue;
    }
    marked += kControlMark;
    marked += mark;
    at += mark.size();
    if (mark == kChannel || mark == kConstrain) continue;
    const std::string_view before = text.substr(header, at - header);
    header = at;
    const size_t begin = SkipSpace(text, at);
    if (mark != kMessage || begin < scanned || RecipientOf(before).empty()) continue;
    const JsonSpan span = SpanJson(text, begin, /*goes_on=*/false);
    scanned = span.end;
    if (span.state != JsonSpan::State::kWhole) continue;
    marked += text.substr(at, span.end - at);
    at = span.end;
  }
  return marked;
}

}  // namespace

std::unique_ptr<CallReader> MakeHarmonyReader() { return std::make_unique<HarmonyReader>(); }

TextParts HarmonyParts(std::string_view text) {
  ThoughtTags tags;
  tags.in_channels = true;
  ThoughtReader reader(tags, /*starts_inside=*/false, /*is_closed=*/false);
  TextParts parts;
  for (const AnswerPart& part : reader.Push(Marked(text))) {
    AddPart(part.kind, part.text.size(), &parts);
  }
  for (const AnswerPart& part : reader.Finish()) AddPart(part.kind, part.text.size(), &parts);
  return parts;
}

}  // namespace minisgl::text
