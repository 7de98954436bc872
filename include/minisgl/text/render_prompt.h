// The second stage of a prompt's way (conversation.h): the chat template writes the text of a
// conversation.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/text_model.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// A sampled answer, and where in the text of a prompt it begins if the template leaves it as it is.
struct RenderedAnswer {
  size_t begin = 0;  // a byte of the text
  std::string text;
  std::vector<TokenId> ids;
};

struct RenderedPrompt {
  std::vector<TextPiece> pieces;        // placeholders of pictures are expanded
  std::vector<LaidOutImage> images;     // in their order
  std::vector<RenderedAnswer> answers;  // in the order of the conversation
  ReasoningTags reasoning;              // of the answer: as the prompt leaves them
  bool goes_on = false;                 // as in Conversation
  std::vector<TokenId> before, after;   // as in RawPrompt
  Status left_out;  // with Conversation::shows_left_out: which text the template leaves out
  // The tokenizer's own ids around the text, also of a chat with a model that reads pictures if the
  // text does not begin with the BOS token: so does its processor.
  bool adds_prefix = false, adds_suffix = false;
};

// Renders the messages of `conversation`, their contents in the form that the template takes, and
// the beginning of an answer, as `start` says; or takes its raw prompt. Members of `kwargs` replace
// members of text.template_args. REQUIRES a chat template if there are messages. Fails soon after
// `*cancelled` becomes true; null: it cannot be cancelled. Other errors: ChatTemplate::Render,
// CheckNothingIsLeftOut of chat_messages.h unless conversation.shows_left_out, and RenderContinued.
// An answer to a raw prompt has no reasoning.
//
// Each placeholder of a picture that the template writes, or that stands in a raw prompt whose
// control tokens count, is replaced by the text of the next picture (ImageTextOf). In the content
// of messages it is text like any other. Of pictures only the headers are read. Errors: a picture
// that does not fit its limits or the model's rules, with its name; another number of placeholders
// than of pictures; text.images_status if there are pictures that the model does not read.
Result<RenderedPrompt> RenderPrompt(const TextModel& text, Conversation conversation,
                                    const std::atomic<bool>* cancelled = nullptr);

}  // namespace minisgl
