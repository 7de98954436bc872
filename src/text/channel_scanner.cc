#include "minisgl/text/channel_scanner.h"

#include <algorithm>
#include <cstddef>

#include "minisgl/text/answer_parts.h"

namespace minisgl {
namespace {

constexpr std::string_view kAnswerChannel = "final";
constexpr std::string_view kRecipient = " to=";
bool IsOfName(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

}  // namespace

ChannelMark ChannelMarkOf(std::string_view spelling) {
  if (spelling == "<|start|>") return ChannelMark::kStart;
  if (spelling == "<|channel|>") return ChannelMark::kChannel;
  if (spelling == "<|message|>") return ChannelMark::kMessage;
  const bool ends = spelling == "<|end|>" || spelling == "<|call|>" || spelling == "<|return|>";
  return ends ? ChannelMark::kEnd : ChannelMark::kOther;
}

ChannelScanner::ChannelScanner(bool starts_inside) {
  if (starts_inside) Begin(Content::kThought);
}

void ChannelScanner::Begin(Content content) {
  phase_ = Phase::kContent;
  content_ = content;
  any_message_ = true;
}

void ChannelScanner::StepName(char byte) {
  if (name_ended_ || (name_ == 0 && byte == ' ')) return;
  name_ended_ = !IsOfName(byte);
  if (name_ended_) return;
  const auto place = static_cast<size_t>(std::max<int8_t>(name_, 0));
  const bool goes_on = name_ >= 0 && place < kAnswerChannel.size() && kAnswerChannel[place] == byte;
  name_ = goes_on ? static_cast<int8_t>(name_ + 1) : int8_t{-1};
}

// Between messages a recipient may stand before the channel; any other text is content without a
// header.
void ChannelScanner::Step(char byte) {
  if (phase_ == Phase::kContent) return;
  const bool is_blank = kBesideTags.find(byte) != std::string_view::npos;
  if (phase_ == Phase::kStart && recipient_ == 0 && is_blank) return;
  // The space may be missing here.
  if (phase_ == Phase::kStart && recipient_ == 0) recipient_ = 1;
  const bool goes_on = recipient_ < kRecipient.size() && kRecipient[recipient_] == byte;
  recipient_ = goes_on ? static_cast<uint8_t>(recipient_ + 1) : uint8_t{byte == ' '};
  has_recipient_ = has_recipient_ || recipient_ == kRecipient.size();
  if (phase_ == Phase::kHeader) StepName(byte);
  if (phase_ != Phase::kStart) return;
  if (has_recipient_) {
    phase_ = Phase::kRole;
  } else if (!goes_on) {
    Begin(Content::kAnswer);
  }
}

void ChannelScanner::Step(ChannelMark mark) {
  if (mark == ChannelMark::kMessage) {
    if (phase_ == Phase::kContent) return;
    const bool is_answer =
        !has_channel_ || static_cast<size_t>(std::max<int8_t>(name_, 0)) == kAnswerChannel.size();
    Begin(has_recipient_ ? Content::kCall : is_answer ? Content::kAnswer : Content::kThought);
    return;
  }
  recipient_ = 0;
  if (mark == ChannelMark::kOther) {
    name_ended_ = true;
    return;
  }
  if (mark != ChannelMark::kChannel || phase_ == Phase::kContent) has_recipient_ = false;
  has_channel_ = mark == ChannelMark::kChannel;
  name_ = 0;
  name_ended_ = false;
  phase_ = mark == ChannelMark::kChannel ? Phase::kHeader
           : mark == ChannelMark::kStart ? Phase::kRole
                                         : Phase::kStart;
}

}  // namespace minisgl
