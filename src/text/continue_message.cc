// The place where the content of the last message ends is found by a mark behind it, which no
// message has: the same text may stand elsewhere in the prompt.
#include "minisgl/text/continue_message.h"

#include <algorithm>
#include <string>
#include <utility>

namespace minisgl {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";
// After the mark: it is missing from the rendered text if the template trims contents.
constexpr std::string_view kMarkEnd = "\t \t";

size_t NumBlanksAtEnd(std::string_view text) {
  return text.size() - (text.find_last_not_of(kBlanks) + 1);
}

Json* Member(Json* object, std::string_view name) {
  if (!object->is_object()) return nullptr;
  for (auto& [key, value] : object->as_object()) {
    if (key == name) return &value;
  }
  return nullptr;
}

// Returns a text that does not occur in `messages`.
std::string MakeMark(const Json& messages) {
  constexpr std::string_view kStem = "c0ntinueh3re";
  const std::string all = messages.Dump();
  // One x more than stand behind the stem anywhere.
  size_t most = 0;
  bool occurs = false;
  for (size_t at = all.find(kStem); at != std::string::npos; at = all.find(kStem, at)) {
    occurs = true;
    at += kStem.size();
    const size_t end = std::min(all.find_first_not_of('x', at), all.size());
    most = std::max(most, end - at);
    at = end;
  }
  return std::string(kStem) + std::string(occurs ? most + 1 : 0, 'x');
}

// The text of the last message, or of the last part of it that has a text; null if it has none.
std::string* LastText(Json* messages) {
  if (!messages->is_array() || messages->as_array().empty()) return nullptr;
  Json* content = Member(&messages->as_array().back(), "content");
  if (content != nullptr && content->is_array()) {
    Json::Array& parts = content->as_array();
    content = nullptr;
    for (auto part = parts.rbegin(); part != parts.rend() && content == nullptr; ++part) {
      content = Member(&*part, "text");
    }
  }
  return content != nullptr && content->is_string() ? &content->as_string() : nullptr;
}

void CutAt(size_t end, std::vector<TextPiece>* pieces) {
  size_t at = 0;
  for (size_t i = 0; i < pieces->size(); ++i) {
    std::string& text = (*pieces)[i].text;
    if (at + text.size() >= end) {
      text.resize(end - at);
      pieces->resize(text.empty() ? i : i + 1);
      return;
    }
    at += text.size();
  }
}

}  // namespace

Result<std::vector<TextPiece>> RenderContinued(const ChatTemplate& chat, ChatInput input,
                                               const CheckedMessages& checked) {
  const std::string mark = MakeMark(input.messages);
  std::string* const content = LastText(&input.messages);
  if (content == nullptr) {
    return BadInput("the last message has no text that an answer could continue");
  }
  const std::string text = *content;
  *content += mark;
  *content += kMarkEnd;
  input.add_generation_prompt = false;
  MINISGL_ASSIGN_OR_RETURN(std::vector<TextPiece> pieces, RenderMessages(chat, &input));
  std::string rendered;
  for (const TextPiece& piece : pieces) rendered += piece.text;
  const size_t at = rendered.rfind(mark);
  if (at == std::string::npos) {
    return BadInput(
        "the chat template does not write the last message, so that an answer cannot continue it");
  }
  MINISGL_RETURN_IF_ERROR(CheckNothingIsLeftOut(chat, input, pieces, checked));
  const bool trims = rendered.compare(at + mark.size(), kMarkEnd.size(), kMarkEnd) != 0;
  const size_t num_blanks = NumBlanksAtEnd(text);
  // If the content is white space alone, trimming has left nothing before the mark.
  const bool cuts_blanks = trims && num_blanks < text.size() &&
                           rendered.compare(at - std::min(at, num_blanks), num_blanks, text,
                                            text.size() - num_blanks) == 0;
  CutAt(cuts_blanks ? at - num_blanks : at, &pieces);
  return pieces;
}

ReasoningTags WithContinued(const ReasoningTags& tags, std::span<const TextPiece> pieces,
                            std::string_view content) {
  size_t before = pieces.size();
  while (before > 0 && !pieces[before - 1].trusted) --before;
  ReasoningTags result = WithPrompt(tags, pieces.first(before));
  if (tags.none() || NumBlanksAtEnd(content) == content.size()) return result;
  const std::string_view text = content.substr(content.find_first_not_of(kBlanks));
  const bool opens = result.starts_inside || text.starts_with(tags.open);
  if (!opens || text.find(tags.close) != std::string_view::npos) return {};
  result.starts_inside = true;
  return result;
}

}  // namespace minisgl
