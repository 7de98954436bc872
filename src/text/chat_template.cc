// From a conversation to the text that a model is given: finding the template, its variables, and
// the boundary at which the interpreter's errors become a Status.
#include "minisgl/text/chat_template.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/tokenizer_config.h"

namespace minisgl {
namespace {

constexpr uint64_t kTemplateBytesMax = uint64_t{1} << 20;

using jinja::Text;
using jinja::Value;

// A word can spell no role marker by itself, only name one: "user" in `<|user|>` comes from the
// conversation.
bool IsWord(std::string_view text) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), is_part);
}

// The messages, their texts untrusted; only a role that is a word is trusted.
Value MessagesValue(const Json& messages) {
  if (!messages.is_array()) return jinja::FromJson(messages, /*trusted=*/false);
  std::vector<Value> items;
  for (const Json& message : messages.as_array()) {
    if (!message.is_object()) {
      items.push_back(jinja::FromJson(message, /*trusted=*/false));
      continue;
    }
    std::vector<std::pair<Text, Value>> members;
    for (const auto& [key, value] : message.as_object()) {
      const bool is_role = key == "role" && value.is_string() && IsWord(value.as_string());
      members.emplace_back(Text(key, false), jinja::FromJson(value, is_role));
    }
    items.push_back(Value::FromDict(std::move(members)));
  }
  return Value::FromList(std::move(items));
}

std::vector<std::pair<std::string, Value>> Variables(const ChatInput& input) {
  std::vector<std::pair<std::string, Value>> variables;
  if (input.extra.is_object()) {
    for (const auto& [name, value] : input.extra.as_object()) {
      variables.emplace_back(
          name, jinja::FromJson(value, value.is_string() && IsWord(value.as_string())));
    }
  }
  // After the caller's, so that these count.
  variables.emplace_back("messages", MessagesValue(input.messages));
  variables.emplace_back("tools", jinja::FromJson(input.tools, /*trusted=*/false));
  variables.emplace_back("documents", jinja::FromJson(input.documents, /*trusted=*/false));
  variables.emplace_back("add_generation_prompt", Value(input.add_generation_prompt));
  variables.emplace_back("bos_token", Value(Text(input.bos_token)));
  variables.emplace_back("eos_token", Value(Text(input.eos_token)));
  variables.emplace_back("unk_token", Value(Text(input.unk_token)));
  variables.emplace_back("pad_token", Value(Text(input.pad_token)));
  for (const char* function : {"raise_exception", "range", "namespace", "dict", "strftime_now"}) {
    std::erase_if(variables, [&](const auto& variable) { return variable.first == function; });
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

// Calls `body`, and turns what it throws into a Status that names `name` and the line.
template <typename Body>
Status Guard(const std::string& name, Body body) {
  try {
    body();
    return {};
  } catch (const jinja::Error& error) {
    return BadInput("{}:{}: {}", name, std::max(1, error.line()), error.what());
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory, "{}: no memory for the chat template", name);
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "{}: the chat template fails ({})", name,
                      Visible(error.what()));
  }
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::string name, jinja::Block block)
      : name_(std::move(name)), block_(std::move(block)) {}

  Result<std::vector<TextPiece>> Render(const ChatInput& input) const override {
    std::vector<TextPiece> pieces;
    MINISGL_RETURN_IF_ERROR(Guard(name_, [&] {
      jinja::Interpreter interpreter(Variables(input));
      pieces = Pieces(interpreter.Run(block_));
    }));
    return pieces;
  }

 private:
  std::string name_;
  jinja::Block block_;
};

// chat_template of tokenizer_config.json: a string, or [{"name": ..., "template": ...}, ...]. Null
// where none.
Result<const Json*> ConfiguredTemplate(const Json& config, const std::string& path) {
  const Json* found = config.Find("chat_template");
  if (found == nullptr || found->is_null() || found->is_string()) {
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  if (!found->is_array()) {
    return BadInput("{}: \"chat_template\" is {}; it must be a string or an array of named ones",
                    path, found->TypeName());
  }
  for (const Json& entry : found->as_array()) {
    const Json *name = entry.Find("name"), *text = entry.Find("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
      return BadInput("{}: an entry of \"chat_template\" has no name or no template", path);
    }
    if (name->as_string() == "default") return text;
  }
  return BadInput(
      "{}: \"chat_template\" has no entry named \"default\"; choose one with --chat-template",
      path);
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                          const std::string& name) {
  const std::string visible_name = Visible(name, 400);
  if (source.size() > kTemplateBytesMax) {
    return BadInput("{}: the chat template has {} bytes; at most {} are supported", visible_name,
                    source.size(), kTemplateBytesMax);
  }
  jinja::Block block;
  MINISGL_RETURN_IF_ERROR(Guard(visible_name, [&] { block = jinja::Parse(jinja::Lex(source)); }));
  return std::unique_ptr<ChatTemplate>(
      std::make_unique<JinjaTemplate>(visible_name, std::move(block)));
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  const std::filesystem::path dir(model_dir);
  const std::string config_path = (dir / "tokenizer_config.json").string();
  MINISGL_ASSIGN_OR_RETURN(const Json config, LoadJsonObject(model_dir, "tokenizer_config.json"));
  MINISGL_ASSIGN_OR_RETURN(const Json* source,
                           ConfiguredTemplate(config, Visible(config_path, 400)));
  if (source != nullptr) return Parse(source->as_string(), config_path + " (chat_template)");
  const std::string file_path = (dir / "chat_template.jinja").string();
  std::error_code error;
  if (!std::filesystem::exists(file_path, error)) return std::unique_ptr<ChatTemplate>();
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(file_path, kTemplateBytesMax));
  return Parse(text, file_path);
}

}  // namespace minisgl
