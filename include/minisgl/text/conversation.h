// A conversation on its way to the model: what a prompt is made of, before the chat template and
// the tokenizer see it.
//
// A prompt goes one way, and each stage takes the value that the one before it returns:
//   parse     a row or the turns of a chat -> Conversation
//   render    Conversation -> RenderedPrompt (render_prompt.h)
//   encode    RenderedPrompt -> EncodedPrompt (encode_prompt.h)
// Then the caller checks the length and adds the settings of the answer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/text/answer_start.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/reasoning.h"

namespace minisgl {

// An answer of which the sampled ids are known. They take the place of its text in the prompt, so
// that the prompt begins with what is cached.
struct SampledAnswer {
  size_t message = 0;        // its index in Conversation::messages
  std::string text;          // its content
  std::vector<TokenId> ids;  // as sampled, end token included; not empty
};

// A prompt without the template: ids, then text, then ids. Each part may be empty.
struct RawPrompt {
  std::vector<TokenId> before;  // of a text that goes on: what was asked and answered so far
  std::string spoken;           // the end of the last answer, if `before` does not spell it
  std::string text;
  std::vector<TokenId> after;
  bool adds_prefix = false, adds_suffix = false;  // the tokenizer's own ids around the text
};

struct Conversation {
  // An array of messages as a template takes them; null: `raw` is the prompt. The content of a
  // message is a string, a list of parts, or null.
  Json messages;
  // The pictures of the parts {"type": "image"} of the messages, in their order.
  std::vector<ConversationImage> images;
  std::vector<SampledAnswer> answers;  // of a conversation that goes on, by ascending index
  Json tools, documents;               // null or arrays
  Json kwargs;                         // variables of the template: null or an object
  AnswerStart start = AnswerStart::kNewMessage;
  CheckedMessages checked;  // the messages whose text must be in the prompt
  // A text that the template leaves out is told in RenderedPrompt::left_out and is no error.
  bool shows_left_out = false;
  ReasoningTags reasoning;  // of the model (FindReasoningTags)
  // It has turns that go on with each other: the prompt is encoded as one text, however long it is,
  // so that a later one is cut in the same places.
  bool goes_on = false;

  RawPrompt raw;
};

}  // namespace minisgl
