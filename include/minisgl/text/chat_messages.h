// Renders messages with their contents in the form that the chat template takes, and checks that
// the rendered text leaves out none of them.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// Brings the contents of input->messages and the arguments of their tool calls into the forms that
// `chat` takes and renders them. Of contents:
// - kParts: a string becomes [{"type": "text", "text": ...}]; a list stays a list.
// - kString: a string stays a string. A list stays a list if the template renders the parts of such
//   a message (ChatTemplate::TakesParts), or if not all of them are texts. Other lists become the
//   texts of their parts, joined without separators.
// How a template takes the arguments of calls (src/text/arguments_form.h):
// - kObject: the JSON text of an object becomes that object; an empty text or null, an empty one.
// - kText: an object becomes its JSON text, and null "{}".
// Errors: ChatTemplate::Render.
Result<std::vector<TextPiece>> RenderMessages(const ChatTemplate& chat, ChatInput* input);

// The messages that CheckNothingIsLeftOut checks, and their names in its errors.
struct CheckedMessages {
  size_t first = 0;          // an index; those before it are not checked
  int64_t index_offset = 0;  // added to the index of a message in an error
};

// Returns kBadInput naming a message of `input` if the template leaves out its text. `pieces` are
// RenderMessages' result for `input`.
//
// A template may drop or rewrite text by a rule: it trims, escapes or cuts it, removes thoughts
// from earlier answers, shows only the calls of a message with tool calls, or the system message
// only in some place. None of this is an error. A text is left out only if
//   1. it is not in `pieces`, white space at its ends aside,
//   2. in the same conversation, a word in place of the text is not rendered either, so that the
//      prompt does not depend on what the message says, and
//   3. no plain message of this role is rendered in any other place: in a conversation of one, two
//      or three messages, or as the last one of its own conversation.
// So the error means: this template has no place for the text of such a message. A template that
// renders nothing at all is left to the caller.
//
// A conversation whose texts are all found costs one search of the text. Otherwise one more
// rendering is made for all texts that are not found, and short ones for those that stay hidden.
Status CheckNothingIsLeftOut(const ChatTemplate& chat, const ChatInput& input,
                             std::span<const TextPiece> pieces,
                             const CheckedMessages& checked = {});

}  // namespace minisgl
