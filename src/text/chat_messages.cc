// The forms of contents, and the search for texts that a template leaves out.
//
// A text that is not found is replaced by a word: digits that stand in no template. One rendering
// with a different word for each such text tells which texts the prompt depends on.
#include "minisgl/text/chat_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "minisgl/base/parse_number.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "text/arguments_form.h"
#include "text/jinja/tracked_text.h"

namespace minisgl::text {
namespace {

// Texts that are not found where they are expected are searched for at most so many times in a
// conversation; the others are looked for by their words, all at once.
constexpr int kSearchesMax = 16;
// Kinds of messages whose text stays hidden: at most so many are tried in other places. More are
// not reported.
constexpr size_t kHiddenKindsMax = 8;

constexpr std::string_view kWordStem = "4180273956";
constexpr size_t kWordDigits = 8;

std::string Word(size_t index) { return fmt::format("{}{:0{}}", kWordStem, index, kWordDigits); }

Json TextPart(std::string text) {
  Json part;
  part.Set("type", "text").Set("text", std::move(text));
  return part;
}

// The text of a part of type text; null for any other value.
template <typename Value>
auto* TextOf(Value* part) {
  const Json* const type = part->Find("type");
  auto* const text = part->Find("text");
  const bool is_text =
      type != nullptr && *type == Json("text") && text != nullptr && text->is_string();
  return is_text ? &text->as_string() : nullptr;
}

// Joins the texts of a list of text parts.
void JoinTexts(Json* content) {
  if (!content->is_array()) return;
  std::string joined;
  for (const Json& part : content->as_array()) {
    const std::string* const text = TextOf(&part);
    if (text == nullptr) return;
    joined += *text;
  }
  *content = Json(std::move(joined));
}

void MakeParts(Json* content) {
  if (!content->is_string()) return;
  *content = Json(Json::Array{TextPart(std::move(content->as_string()))});
}

// Brings each content into `form`.
void ShapeContents(ContentForm form, Json* messages) {
  for (Json& message : messages->as_array()) {
    Json* const content = message.Find("content");
    if (content == nullptr) continue;
    form == ContentForm::kParts ? MakeParts(content) : JoinTexts(content);
  }
}

// Brings each content into the form that `chat` takes.
void ShapeContents(const ChatTemplate& chat, bool with_tools, Json* messages) {
  if (!messages->is_array()) return;
  const ContentForm form = chat.content_form(with_tools);
  for (Json& message : messages->as_array()) {
    Json* const content = message.Find("content");
    if (content == nullptr) continue;
    if (form == ContentForm::kParts) {
      MakeParts(content);
    } else if (content->is_array()) {
      const Json* const role = message.Find("role");
      const bool is_named = role != nullptr && role->is_string();
      if (!is_named || !chat.TakesParts(role->as_string(), with_tools)) JoinTexts(content);
    }
  }
}

// A text in the content of a message: the content itself, or one of its parts.
struct TextPlace {
  size_t message = 0;
  size_t part = 0;       // among the texts of the message
  size_t num_parts = 0;  // texts of the message
};

// The texts of a message, in its order.
template <typename Value>
auto TextsOf(Value* message) {
  std::vector<decltype(TextOf(message))> texts;
  auto* const content = message->Find("content");
  if (content != nullptr && content->is_string()) texts.push_back(&content->as_string());
  if (content != nullptr && content->is_array()) {
    for (auto& part : content->as_array()) {
      auto* const text = TextOf(&part);
      if (text != nullptr) texts.push_back(text);
    }
  }
  return texts;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

std::string Joined(std::span<const TextPiece> pieces, bool with_trusted) {
  std::string text;
  for (const TextPiece& piece : pieces) {
    if (with_trusted || !piece.trusted) text += piece.text;
  }
  return text;
}

// Looks for texts in the rendered conversation, each first behind the text found before it.
class TextSearch {
 public:
  explicit TextSearch(std::span<const TextPiece> pieces)
      : rendered_(Joined(pieces, /*with_trusted=*/false)) {}

  // False if it is not there, or was not looked for.
  bool Finds(std::string_view text) {
    if (num_failed_ > kSearchesMax) return false;
    size_t at = jinja::Find(rendered_, text, end_);
    if (at == std::string::npos) {
      ++num_failed_;
      at = jinja::Find(rendered_, text);
    }
    if (at == std::string::npos) return false;
    end_ = at + text.size();
    return true;
  }

 private:
  const std::string rendered_;
  size_t end_ = 0;  // of the last text found
  int num_failed_ = 0;
};

// The texts that are not found in `pieces`, except texts of white space.
std::vector<TextPlace> TextsNotFound(const ChatInput& input, std::span<const TextPiece> pieces,
                                     size_t first) {
  std::vector<TextPlace> places;
  TextSearch search(pieces);
  const Json::Array& messages = input.messages.as_array();
  for (size_t i = first; i < messages.size(); ++i) {
    const auto texts = TextsOf(&messages[i]);
    for (size_t part = 0; part < texts.size(); ++part) {
      const std::string_view text = Trimmed(*texts[part]);
      if (!text.empty() && !search.Finds(text)) places.push_back({i, part, texts.size()});
    }
  }
  return places;
}

// The indices of the words that a rendering of `input` has; nullopt if it fails.
std::optional<std::set<size_t>> WordsRendered(const ChatTemplate& chat, const ChatInput& input) {
  const Result<std::vector<TextPiece>> pieces = chat.Render(input);
  if (!pieces.ok()) return std::nullopt;
  const std::string rendered = Joined(*pieces, /*with_trusted=*/true);
  std::set<size_t> words;
  for (size_t at = rendered.find(kWordStem); at != std::string::npos;
       at = rendered.find(kWordStem, at + 1)) {
    const auto index = ParseNumber<int64_t>(rendered.substr(at + kWordStem.size(), kWordDigits));
    if (index && *index >= 0) words.insert(static_cast<size_t>(*index));
  }
  return words;
}

class HiddenTexts {
 public:
  HiddenTexts(const ChatTemplate& chat, const ChatInput& input)
      : chat_(chat), input_(input), form_(chat.content_form(!input.tools.is_null())) {}

  // Removes the places whose text the prompt depends on. If that cannot be found out, all.
  void KeepHidden(std::vector<TextPlace>* places) const {
    ChatInput input = input_;
    Json::Array& messages = input.messages.as_array();
    // Places are in the order of messages: the texts of each are looked up once.
    size_t message = messages.size();
    std::vector<std::string*> texts;
    for (size_t i = 0; i < places->size(); ++i) {
      const TextPlace& place = (*places)[i];
      if (place.message != message) {
        message = place.message;
        texts = TextsOf(&messages[message]);
      }
      *texts[place.part] = Word(i);
    }
    const auto words = WordsRendered(chat_, input);
    std::vector<TextPlace> hidden;
    for (size_t i = 0; words && i < places->size(); ++i) {
      if (!words->contains(i)) hidden.push_back((*places)[i]);
    }
    *places = std::move(hidden);
  }

  // True if a message like the one of `place` is rendered somewhere.
  bool IsRenderedElsewhere(const TextPlace& place) const {
    if (IsRenderedAlone(place, form_)) return true;
    const Json::Array& messages = input_.messages.as_array();
    const auto end = messages.begin() + static_cast<std::ptrdiff_t>(place.message) + 1;
    Json::Array beginning(messages.begin(), end);
    *TextsOf(&beginning.back())[place.part] = Word(0);
    return Renders(Json(std::move(beginning)));
  }

  Status Error(const TextPlace& place, int64_t index_offset) const {
    const bool takes_parts = form_ == ContentForm::kParts;
    const ContentForm other = takes_parts ? ContentForm::kString : ContentForm::kParts;
    std::string advice =
        IsRenderedAlone(place, other)
            ? fmt::format("pass it in another form with {} {}",
                          SettingName(Setting::kTemplateContent), takes_parts ? "string" : "parts")
            : fmt::format("give it another role, or use another template with {}",
                          SettingName(Setting::kChatTemplate));
    return BadInput("messages[{}] (role {}): the chat template leaves out {}; {}",
                    static_cast<int64_t>(place.message) + index_offset, RoleOf(place),
                    place.num_parts == 1 ? std::string("its text")
                                         : fmt::format("text {} of the {} in its content",
                                                       place.part + 1, place.num_parts),
                    advice);
  }

  std::string RoleOf(const TextPlace& place) const {
    const Json* const role = input_.messages.as_array()[place.message].Find("role");
    return role != nullptr && role->is_string() ? Visible(role->as_string(), 60) : "unknown";
  }

 private:
  // True if word 0 is rendered of these messages.
  bool Renders(Json messages) const {
    ChatInput input;
    input.messages = std::move(messages);
    input.bos_token = input_.bos_token;
    input.eos_token = input_.eos_token;
    input.unk_token = input_.unk_token;
    input.pad_token = input_.pad_token;
    input.tools = input_.tools;
    input.documents = input_.documents;
    input.extra = input_.extra;
    input.now = input_.now;
    input.cancelled = input_.cancelled;
    const auto words = WordsRendered(chat_, input);
    return words && words->contains(0);
  }

  // True if a message of the same role and as many texts, without other members, is rendered in a
  // conversation of its own, or before or behind a message of a user.
  bool IsRenderedAlone(const TextPlace& place, ContentForm form) const {
    Json message, user;
    const Json& given = input_.messages.as_array()[place.message];
    if (const Json* const role = given.Find("role")) message.Set("role", *role);
    Json::Array parts;
    for (size_t i = 0; i < place.num_parts; ++i) {
      parts.push_back(TextPart(Word(i == place.part ? 0 : i + 1)));
    }
    message.Set("content", Json(std::move(parts)));
    user.Set("role", "user").Set("content", "a");
    for (const Json::Array& messages :
         {Json::Array{message}, {message, user}, {user, message}, {user, message, user}}) {
      Json shaped = Json(messages);
      if (form == form_) {
        ShapeContents(chat_, !input_.tools.is_null(), &shaped);
      } else {
        ShapeContents(form, &shaped);
      }
      if (Renders(std::move(shaped))) return true;
    }
    return false;
  }

  const ChatTemplate& chat_;
  const ChatInput& input_;
  const ContentForm form_;
};

}  // namespace
}  // namespace minisgl::text

namespace minisgl {

Result<std::vector<TextPiece>> RenderMessages(const ChatTemplate& chat, ChatInput* input) {
  const bool with_tools = !input->tools.is_null();
  text::ShapeContents(chat, with_tools, &input->messages);
  if (text::HasCalls(input->messages)) {
    text::ShapeArguments(chat.arguments_form(with_tools), &input->messages);
  }
  return chat.Render(*input);
}

Status CheckNothingIsLeftOut(const ChatTemplate& chat, const ChatInput& input,
                             std::span<const TextPiece> pieces, const CheckedMessages& checked) {
  const bool is_empty = std::all_of(pieces.begin(), pieces.end(),
                                    [](const TextPiece& piece) { return piece.text.empty(); });
  if (is_empty || !input.messages.is_array()) return {};
  std::vector<text::TextPlace> places = text::TextsNotFound(input, pieces, checked.first);
  if (places.empty()) return {};
  const text::HiddenTexts hidden(chat, input);
  hidden.KeepHidden(&places);
  std::set<std::tuple<std::string, size_t, size_t>> tried;
  for (const text::TextPlace& place : places) {
    if (!tried.insert({hidden.RoleOf(place), place.part, place.num_parts}).second) continue;
    if (tried.size() > text::kHiddenKindsMax) break;
    if (!hidden.IsRenderedElsewhere(place)) return hidden.Error(place, checked.index_offset);
  }
  return {};
}

}  // namespace minisgl
