#include "minisgl/text/render_prompt.h"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/continue_message.h"
#include "text/image_placeholders.h"

namespace minisgl {
namespace {

std::string LastContent(const Json& messages) {
  const Json* const content = messages.as_array().back().Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

// A prompt is trusted as the program's own text, unless the user refuses that. What the model said
// is trusted.
RenderedPrompt RawPieces(const TextModel& text, RawPrompt raw) {
  RenderedPrompt prompt;
  prompt.before = std::move(raw.before);
  prompt.after = std::move(raw.after);
  prompt.adds_prefix = raw.adds_prefix;
  prompt.adds_suffix = raw.adds_suffix;
  if (!raw.spoken.empty()) prompt.pieces.push_back({std::move(raw.spoken), true});
  const bool has_text = !raw.text.empty() || prompt.after.empty();
  // Not copied: it may be long.
  if (has_text) prompt.pieces.push_back({std::move(raw.text), !text.no_parse_special});
  return prompt;
}

ChatInput InputOf(const TextModel& text, Conversation* conversation,
                  const std::atomic<bool>* cancelled) {
  ChatInput input;
  input.messages = std::move(conversation->messages);
  input.tools = std::move(conversation->tools);
  input.documents = std::move(conversation->documents);
  input.cancelled = cancelled;
  input.bos_token = text.tokenizer->bos_token();
  input.eos_token = text.tokenizer->eos_token();
  input.unk_token = text.tokenizer->unk_token();
  input.pad_token = text.tokenizer->pad_token();
  input.extra = text.template_args;
  if (conversation->kwargs.is_object()) input.extra.SetAll(std::move(conversation->kwargs));
  return input;
}

// An answer to messages[0, i) began right after the text that those messages render to. Leaves out
// the answers before which the whole text is another.
std::vector<RenderedAnswer> PlacesOfAnswers(const ChatTemplate& chat, ChatInput input,
                                            std::vector<SampledAnswer> answers,
                                            std::span<const TextPiece> pieces) {
  std::string whole;
  for (const TextPiece& piece : pieces) whole += piece.text;
  const Json::Array messages = std::move(input.messages.as_array());
  input.add_generation_prompt = true;
  std::vector<RenderedAnswer> places;
  for (SampledAnswer& answer : answers) {
    const auto end = messages.begin() + static_cast<std::ptrdiff_t>(answer.message);
    input.messages = Json(Json::Array(messages.begin(), end));
    const Result<std::vector<TextPiece>> before = RenderMessages(chat, &input);
    if (!before.ok()) continue;
    std::string head;
    for (const TextPiece& piece : *before) head += piece.text;
    if (!whole.starts_with(head)) continue;
    places.push_back({head.size(), std::move(answer.text), std::move(answer.ids)});
  }
  return places;
}

// Refuses pictures of a model that reads none.
Status CheckReadsImages(const TextModel& text, const std::vector<ConversationImage>& pictures) {
  if (pictures.empty() || text.images) return Status();
  if (!text.images_status.ok()) return text.images_status;
  return MakeStatus(StatusCode::kUnavailable, "the model reads no images");
}

// The processor of a multimodal model adds the tokenizer's own ids to a chat, unless its text
// begins with the first of them.
void AddProcessorIds(const Tokenizer& tokenizer, RenderedPrompt* prompt) {
  const std::string bos = tokenizer.bos_token();
  std::string head;
  for (const TextPiece& piece : prompt->pieces) {
    if (head.size() >= bos.size()) break;
    head += piece.text.substr(0, bos.size());
  }
  const bool has_bos = !bos.empty() && head.starts_with(bos);
  prompt->adds_prefix = prompt->adds_suffix = !has_bos;
}

Result<RenderedPrompt> RenderChat(const TextModel& text, Conversation conversation,
                                  const std::atomic<bool>* cancelled) {
  const ChatTemplate& chat = *text.chat_template;
  RenderedPrompt prompt;
  prompt.goes_on = conversation.goes_on;
  ChatInput input = InputOf(text, &conversation, cancelled);
  std::optional<ChatInput> as_given;
  if (!conversation.answers.empty()) as_given = input;
  if (conversation.start == AnswerStart::kContinue) {
    const std::string continued = LastContent(input.messages);
    MINISGL_ASSIGN_OR_RETURN(prompt.pieces,
                             RenderContinued(chat, std::move(input), conversation.checked));
    prompt.reasoning = WithContinued(conversation.reasoning, prompt.pieces, continued);
  } else {
    input.add_generation_prompt = conversation.start == AnswerStart::kNewMessage;
    MINISGL_ASSIGN_OR_RETURN(prompt.pieces, RenderMessages(chat, &input));
    prompt.left_out = CheckNothingIsLeftOut(chat, input, prompt.pieces, conversation.checked);
    if (!prompt.left_out.ok() && !conversation.shows_left_out) return prompt.left_out;
    prompt.reasoning = WithPrompt(conversation.reasoning, prompt.pieces);
  }
  if (as_given) {
    prompt.answers =
        PlacesOfAnswers(chat, std::move(*as_given), std::move(conversation.answers), prompt.pieces);
  }
  return prompt;
}

}  // namespace

Result<RenderedPrompt> RenderPrompt(const TextModel& text, Conversation conversation,
                                    const std::atomic<bool>* cancelled) {
  std::vector<ConversationImage> pictures = std::move(conversation.images);
  MINISGL_RETURN_IF_ERROR(CheckReadsImages(text, pictures));
  RenderedPrompt prompt;
  if (conversation.messages.is_null()) {
    prompt = RawPieces(text, std::move(conversation.raw));
    if (pictures.empty()) return prompt;
  } else {
    MINISGL_CHECK(text.chat_template != nullptr, "messages without a chat template");
    MINISGL_ASSIGN_OR_RETURN(prompt, RenderChat(text, std::move(conversation), cancelled));
    if (!text.images) return prompt;
    AddProcessorIds(*text.tokenizer, &prompt);
  }
  MINISGL_RETURN_IF_ERROR(text::ExpandPlaceholders(*text.images, std::move(pictures), &prompt));
  return prompt;
}

}  // namespace minisgl
