// ChatTemplate on top of the interpreter in jinja/: builds a template's variables from a
// conversation and converts the interpreter's exceptions to Status.
#include "minisgl/text/chat_template.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>

#include "minisgl/base/utf8.h"
#include "text/arguments_form.h"
#include "text/content_form.h"
#include "text/jinja/guard.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace minisgl::text {
namespace {

using jinja::Text;
using jinja::Value;

// True if `text` is a word. A word cannot spell a role marker, it can only be the name inside one:
// "user" in `<|user|>` comes from the conversation.
bool IsWord(std::string_view text) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), is_part);
}

// Returns a message's reasoning, under the first of these names that is present; null if none is.
const Json* Reasoning(const Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Json* value = message.Find(name);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

// One message without its null members, except a content that is null: templates may ask for it.
// Its reasoning is stored under both names that templates use.
Value MessageValue(const Json& message) {
  const Json* const reasoning = Reasoning(message);
  const Json* const thinking = message.Find("thinking");
  std::vector<std::pair<Value, Value>> members;
  if (reasoning != nullptr) {
    const bool has_own = thinking != nullptr && !thinking->is_null();
    members.emplace_back(Value(Text("thinking")),
                         jinja::FromJson(has_own ? *thinking : *reasoning, /*trusted=*/false));
    members.emplace_back(Value(Text("reasoning_content")),
                         jinja::FromJson(*reasoning, /*trusted=*/false));
  }
  for (const auto& [key, value] : message.as_object()) {
    if (value.is_null() && key == "content") {
      jinja::Undefined content{key};
      content.is_null = true;
      members.emplace_back(Value(Text(key)), Value(std::move(content)));
    }
    if (value.is_null() ||
        (reasoning != nullptr && (key == "thinking" || key == "reasoning_content")))
      continue;
    const bool is_role = key == "role" && value.is_string() && IsWord(value.as_string());
    members.emplace_back(Value(Text(key, false)), jinja::FromJson(value, is_role));
  }
  return Value::FromDict(std::move(members));
}

// The messages. Their strings are untrusted, except a role that is a word.
Value MessagesValue(const Json& messages) {
  if (!messages.is_array()) return jinja::FromJson(messages, /*trusted=*/false);
  std::vector<Value> items;
  for (const Json& message : messages.as_array()) {
    if (!message.is_object()) {
      items.push_back(jinja::FromJson(message, /*trusted=*/false));
      continue;
    }
    items.push_back(MessageValue(message));
  }
  return Value::FromList(std::move(items));
}

std::vector<std::pair<std::string, Value>> Variables(const ChatInput& input) {
  std::vector<std::pair<std::string, Value>> variables;
  if (input.extra.is_object()) {
    for (const auto& [name, value] : input.extra.as_object()) {
      if (ChatTemplate::Sets(name)) continue;
      variables.emplace_back(
          name, jinja::FromJson(value, value.is_string() && IsWord(value.as_string())));
    }
  }
  variables.emplace_back("messages", MessagesValue(input.messages));
  variables.emplace_back("tools", jinja::FromJson(input.tools, /*trusted=*/false));
  variables.emplace_back("documents", jinja::FromJson(input.documents, /*trusted=*/false));
  variables.emplace_back("add_generation_prompt", Value(input.add_generation_prompt));
  for (const auto& [name, token] :
       {std::pair("bos_token", &input.bos_token), std::pair("eos_token", &input.eos_token),
        std::pair("unk_token", &input.unk_token), std::pair("pad_token", &input.pad_token)}) {
    variables.emplace_back(name,
                           token->empty() ? Value(jinja::Undefined{name}) : Value(Text(*token)));
  }
  return variables;
}

std::vector<TextPiece> Pieces(const Text& text) {
  std::vector<TextPiece> pieces;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    pieces.push_back({text.bytes().substr(begin, run.end - begin), run.trusted});
    begin = run.end;
  }
  return pieces;
}

constexpr const char* kOfModel = "the chat template";
// The roles of messages whose contents may be several parts.
constexpr const char* kRolesOfParts[] = {"user", "system", "assistant"};

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(std::string name, std::string source, jinja::Block block,
                std::set<std::string, std::less<>> names, ContentForm content_form)
      : name_(std::move(name)),
        source_(std::move(source)),
        block_(std::move(block)),
        names_(std::move(names)),
        content_form_(content_form) {
    if (content_form_ == ContentForm::kParts && RendersString()) {
      content_form_ = ContentForm::kString;
    }
  }

  Result<std::vector<TextPiece>> Render(const ChatInput& input) const override {
    std::vector<TextPiece> pieces;
    MINISGL_RETURN_IF_ERROR(jinja::Guard(name_, kOfModel, [&] {
      jinja::Interpreter interpreter(Variables(input), input.now, input.cancelled);
      pieces = Pieces(interpreter.Run(block_));
    }));
    return pieces;
  }

  bool Reads(std::string_view variable) const override { return names_.contains(variable); }
  bool SourceContains(std::string_view text) const override {
    return source_.find(text) != std::string::npos;
  }
  ArgumentsForm arguments_form(bool with_tools) const override {
    KnownForm& known = arguments_forms_[with_tools ? 1 : 0];
    std::call_once(known.once, [&] { known.form = FindArgumentsForm(*this, with_tools); });
    return known.form;
  }

 private:
  struct KnownForm {
    std::once_flag once;
    ArgumentsForm form = ArgumentsForm::kObject;
  };

  ContentForm OwnContentForm(bool) const override { return content_form_; }

  bool OwnTakesParts(std::string_view role, bool) const override {
    if (content_form_ == ContentForm::kParts) return true;
    std::call_once(parts_once_, [this] {
      for (size_t i = 0; i < std::size(kRolesOfParts); ++i) takes_parts_[i] = RendersParts(i);
    });
    const auto* const found = std::find(std::begin(kRolesOfParts), std::end(kRolesOfParts), role);
    return found != std::end(kRolesOfParts) && takes_parts_[found - std::begin(kRolesOfParts)];
  }

  // True if each of two text parts of a message of that role is rendered, and not as the list that
  // it is in.
  bool RendersParts(size_t role) const {
    constexpr const char* kTexts[] = {"4180273956", "5609372814"};
    ChatInput input;
    input.bos_token = input.eos_token = "<s>";
    const auto add = [&input](const char* name, Json content) {
      Json message;
      message.Set("role", name).Set("content", std::move(content));
      input.messages.Append(std::move(message));
    };
    Json parts = Json(Json::Array());
    for (const char* text : kTexts) {
      Json part;
      part.Set("type", "text").Set("text", text);
      parts.Append(std::move(part));
    }
    const std::string name = kRolesOfParts[role];
    if (name == "assistant") add("user", "a");
    add(name.c_str(), std::move(parts));
    if (name == "system") add("user", "a");
    const Result<std::vector<TextPiece>> pieces = Render(input);
    if (!pieces.ok()) return false;
    std::string text;
    for (const TextPiece& piece : *pieces) text += piece.trusted ? "" : piece.text;
    return std::all_of(
               std::begin(kTexts), std::end(kTexts),
               [&text](const char* part) { return text.find(part) != std::string::npos; }) &&
           text.find("type") == std::string::npos;
  }

  // True if the template renders a user's content that is a string. A question whether the content
  // is a string may stand where FindContentForm does not see it, around the call of a macro for
  // example, and parts may be read of the results of tools alone. Such a template keeps the string.
  bool RendersString() const {
    constexpr const char* kText = "4180273956";  // a text that no template writes by itself
    Json message;
    message.Set("role", "user").Set("content", kText);
    ChatInput input;
    input.messages.Append(std::move(message));
    const Result<std::vector<TextPiece>> pieces = Render(input);
    if (!pieces.ok()) return false;
    return std::any_of(pieces->begin(), pieces->end(), [](const TextPiece& piece) {
      return piece.text.find(kText) != std::string::npos;
    });
  }

  std::string name_;
  std::string source_;
  jinja::Block block_;
  std::set<std::string, std::less<>> names_;
  ContentForm content_form_;
  mutable std::once_flag parts_once_;
  mutable std::array<bool, std::size(kRolesOfParts)> takes_parts_{};  // by parts_once_
  mutable std::array<KnownForm, 2> arguments_forms_;                  // without and with tools
};

// Returns all names inside tags, except attribute names.
std::set<std::string, std::less<>> NamesRead(const std::vector<jinja::Token>& tokens) {
  std::set<std::string, std::less<>> names;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_attribute = i > 0 && tokens[i - 1].IsOperator(".");
    if (tokens[i].kind == jinja::Token::Kind::kName && !is_attribute) names.insert(tokens[i].text);
  }
  return names;
}

}  // namespace
}  // namespace minisgl::text

namespace minisgl {

bool ChatTemplate::Sets(std::string_view variable) {
  static constexpr std::string_view kNames[] = {
      "messages",  "tools",     "documents",   "add_generation_prompt", "bos_token",
      "eos_token", "unk_token", "pad_token",   "raise_exception",       "range",
      "namespace", "dict",      "strftime_now"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames);
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                          const std::string& name) {
  const std::string visible_name = Visible(name, 400);
  if (source.size() > kTemplateBytesMax) {
    return BadInput("{}: the chat template has {} bytes; at most {} are supported", visible_name,
                    source.size(), kTemplateBytesMax);
  }
  text::jinja::Block block;
  std::set<std::string, std::less<>> names;
  ContentForm form = ContentForm::kString;
  MINISGL_RETURN_IF_ERROR(text::jinja::Guard(visible_name, text::kOfModel, [&] {
    std::vector<text::jinja::Token> tokens = text::jinja::Lex(source);
    names = text::NamesRead(tokens);
    block = text::jinja::Parse(std::move(tokens));
    form = text::FindContentForm(block);
  }));
  return std::unique_ptr<ChatTemplate>(std::make_unique<text::JinjaTemplate>(
      visible_name, std::string(source), std::move(block), std::move(names), form));
}

}  // namespace minisgl
