// The text side of a model: its tokenizer and chat template, and how messages become token ids.
//
// A TextModel is immutable after loading; the functions are thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/answer_start.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

struct TextModel {
  std::string dir;  // the model directory
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null if the model has none
  Json template_args;                           // variables of every rendering: null or an object
  bool parse_special = false;                   // control tokens count in message content too
  bool no_parse_special = false;                // control tokens do not count in raw prompts
};

// Renders `messages`, with their contents in the form that the template takes, and the start of an
// answer that `start` names. REQUIRES a chat template. The members of `kwargs` (null or an object)
// replace members of template_args. Fails soon after `*cancelled` becomes true; null: it cannot be
// cancelled. Other errors: ChatTemplate::Render, CheckNothingIsLeftOut of chat_messages.h, and
// RenderContinued.
Result<std::vector<TextPiece>> RenderChat(const TextModel& text, Json messages,
                                          Json kwargs = Json(), Json tools = Json(),
                                          Json documents = Json(),
                                          const std::atomic<bool>* cancelled = nullptr,
                                          AnswerStart start = AnswerStart::kNewMessage);

// Returns the pieces of a raw prompt, which no template renders.
std::vector<TextPiece> RawPieces(const TextModel& text, std::string prompt);

// The token ids of `pieces`, from either function above.
Result<std::vector<TokenId>> EncodeRendered(const TextModel& text, std::vector<TextPiece> pieces);
// The same, passed to `sink` in parts (Tokenizer::EncodeTo).
Status EncodeRenderedTo(const TextModel& text, std::vector<TextPiece> pieces,
                        const TokenSink& sink);

}  // namespace minisgl
