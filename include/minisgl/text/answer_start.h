// Where the answer to a conversation begins.
#pragma once

#include <cstdint>

namespace minisgl {

// kNewMessage: the template begins a message of the assistant (add_generation_prompt). kContinue:
// the answer continues the text of the last message. kNothing: it follows the last message, and the
// template begins nothing.
enum class AnswerStart : uint8_t { kNewMessage, kContinue, kNothing };

}  // namespace minisgl
