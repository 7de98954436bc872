#include "minisgl/text/text_model.h"

#include <span>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/continue_message.h"

namespace minisgl {

Result<std::vector<TextPiece>> RenderChat(const TextModel& text, Json messages, Json kwargs,
                                          Json tools, Json documents,
                                          const std::atomic<bool>* cancelled, AnswerStart start) {
  MINISGL_CHECK(text.chat_template != nullptr, "RenderChat without a chat template");
  ChatInput input;
  input.messages = std::move(messages);
  input.tools = std::move(tools);
  input.documents = std::move(documents);
  input.cancelled = cancelled;
  input.bos_token = text.tokenizer->bos_token();
  input.eos_token = text.tokenizer->eos_token();
  input.unk_token = text.tokenizer->unk_token();
  input.pad_token = text.tokenizer->pad_token();
  input.extra = text.template_args;
  if (kwargs.is_object()) input.extra.SetAll(std::move(kwargs));
  if (start == AnswerStart::kContinue) {
    return RenderContinued(*text.chat_template, std::move(input));
  }
  input.add_generation_prompt = start == AnswerStart::kNewMessage;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TextPiece> pieces,
                           RenderMessages(*text.chat_template, &input));
  MINISGL_RETURN_IF_ERROR(CheckNothingIsLeftOut(*text.chat_template, input, pieces));
  return pieces;
}

std::vector<TextPiece> RawPieces(const TextModel& text, std::string prompt) {
  std::vector<TextPiece> pieces;
  pieces.push_back({std::move(prompt), !text.no_parse_special});  // not copied: it may be long
  return pieces;
}

Result<std::vector<TokenId>> EncodeRendered(const TextModel& text, std::vector<TextPiece> pieces) {
  std::vector<TokenId> ids;
  MINISGL_RETURN_IF_ERROR(
      EncodeRenderedTo(text, std::move(pieces), [&ids](std::span<const TokenId> more) {
        ids.insert(ids.end(), more.begin(), more.end());
        return true;
      }));
  return ids;
}

Status EncodeRenderedTo(const TextModel& text, std::vector<TextPiece> pieces,
                        const TokenSink& sink) {
  if (text.parse_special) {
    for (TextPiece& piece : pieces) piece.trusted = true;
  }
  return text.tokenizer->EncodeTo(pieces, sink);
}

}  // namespace minisgl
