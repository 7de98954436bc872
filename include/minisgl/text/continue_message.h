// Prompts that end in the beginning of an answer, which the answer continues ("prefill",
// continue_final_message).
//
// The template renders the conversation as usual, and the rendered text ends after the content of
// the last message. White space at the end of that content stays unless the template trims
// contents, as in the transformers library. Thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/reasoning.h"

namespace minisgl {

// Renders `input`, its contents in the form that `chat` takes, up to the end of its last message's
// content; add_generation_prompt is not read. kBadInput if that content is no text, or if the
// template does not write it. Other errors: ChatTemplate::Render, and CheckNothingIsLeftOut of
// chat_messages.h.
Result<std::vector<TextPiece>> RenderContinued(const ChatTemplate& chat, ChatInput input,
                                               const CheckedMessages& checked = {});

// Returns the tags of an answer that continues `content`, the end of the prompt rendered to
// `pieces`: inside the reasoning if that is open there, else without any.
ReasoningTags WithContinued(const ReasoningTags& tags, std::span<const TextPiece> pieces,
                            std::string_view content);

}  // namespace minisgl
