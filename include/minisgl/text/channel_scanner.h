// Reads answers that are messages in channels, as gpt-oss writes them (the harmony format):
//
//   <|start|>assistant<|channel|>NAME to=RECIPIENT <|constrain|>TYPE<|message|>CONTENT<|end|>
//
// The prompt ends with <|start|>assistant, or in a message. A message in the channel "final", or in
// none, is the answer; one with a recipient is a call; any other one is reasoning.
#pragma once

#include <cstdint>
#include <string_view>

namespace minisgl {

// The control tokens that divide messages. kEnd: any that ends one.
enum class ChannelMark : uint8_t { kOther, kStart, kChannel, kMessage, kEnd };
ChannelMark ChannelMarkOf(std::string_view spelling);

// The names of all control tokens of the format.
inline constexpr std::string_view kChannelTokens[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                                      "<|constrain|>", "<|end|>",     "<|call|>"};

// Copied often: it has no memory of its own.
class ChannelScanner {
 public:
  enum class Phase : uint8_t {
    kStart,    // between messages, and nothing but white space there yet
    kRole,     // the role of a message
    kHeader,   // its channel and what stands behind that
    kContent,  // its content
  };
  enum class Content : uint8_t { kAnswer, kCall, kThought };

  // `starts_inside`: the prompt has begun a thought.
  explicit ChannelScanner(bool starts_inside = false);

  void Step(char byte);  // of an ordinary token
  void Step(ChannelMark mark);

  Phase phase() const { return phase_; }
  Content content() const { return content_; }  // of the message that began last
  bool any_message() const { return any_message_; }
  // True in a thought, and from its end to the beginning of another message.
  bool inside() const { return any_message_ && content_ == Content::kThought; }

 private:
  void Begin(Content content);
  void StepName(char byte);

  Phase phase_ = Phase::kStart;
  Content content_ = Content::kAnswer;
  bool any_message_ = false;
  bool has_channel_ = false, has_recipient_ = false;
  bool name_ended_ = false;
  int8_t name_ = 0;        // bytes of "final" that the name begins with; -1: it is another one
  uint8_t recipient_ = 0;  // bytes of " to=" before here
};

}  // namespace minisgl
