// A model's chat template: an interpreter for the subset of Jinja that model directories use.
//
// Rendering matches Jinja2 with trim_blocks, lstrip_blocks and loop controls, as the transformers
// library configures it. A template is immutable after parsing; Render is thread-safe.
//
// Templates are untrusted input. They can read no file, and only the attributes listed here.
// Upper bounds:
//   nesting    128 levels in the parser, 500 nodes in evaluation (macros included)
//   work       1 M node visits, 512 MiB of values built
//   text       16 MiB for the output and for any other string
//   range()    100,000 numbers
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// Upper bound on the size of a template's source, far above real templates.
inline constexpr uint64_t kTemplateBytesMax = uint64_t{1} << 20;

// The form in which a template takes the content of messages: a string, or a list of parts as in
// [{"type": "text", "text": ...}].
enum class ContentForm : uint8_t { kString, kParts };

// The form in which a template takes the arguments of tool calls: an object, or the text of one in
// JSON.
enum class ArgumentsForm : uint8_t { kObject, kText };

// The variables of a template.
struct ChatInput {
  // An array of {role, content, ...}. All strings in it are untrusted, except a role that is a word
  // (letters, digits, `_`, `-`): a word can be the name inside a marker like `<|user|>`, but cannot
  // spell the marker itself.
  // As in the transformers library, null members are omitted, and a value found under
  // reasoning_content, thinking or reasoning is passed under each of the first two names. A content
  // that is null stays none to a template that asks (`is none`, `== none`), is undefined to `is
  // defined`, and an empty text to one that writes it or calls a method of it.
  Json messages;
  bool add_generation_prompt = true;
  std::string bos_token, eos_token, unk_token, pad_token;  // "": undefined in the template
  Json tools;                                              // null or an array
  Json documents;                                          // null or an array
  // Null or an object: chat_template_kwargs. Its strings are untrusted, except words. It cannot
  // replace the variables that the program sets (ChatTemplate::Sets).
  Json extra;
  // The time for strftime_now, in seconds since 1970; unset: the system clock.
  std::optional<int64_t> now;
  // Rendering fails soon after this becomes true; null: it cannot be cancelled.
  const std::atomic<bool>* cancelled = nullptr;
};

class ChatTemplate {
 public:
  // Errors name `name` (a file) and the template's line.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                     const std::string& name);
  // Loads the template of a model directory. The first of these that has templates is used:
  //   1. chat_template.jinja and additional_chat_templates/NAME.jinja
  //   2. chat_template of tokenizer_config.json (a string, or a list of named templates)
  //   3. chat_template.json
  // Of several templates, "tool_use" is used if tools are given, otherwise "default". Returns null
  // if the directory has no template.
  static Result<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);
  // Loads the template named `name`; a single template is named "default". kNoInput if none has
  // that name.
  static Result<std::unique_ptr<ChatTemplate>> LoadNamed(const std::string& model_dir,
                                                         const std::string& name);

  virtual ~ChatTemplate() = default;

  // Renders the text. A piece is untrusted if it comes from `messages`, `tools` or `documents`,
  // even through filters. kBadInput with the template's line if the template calls raise_exception
  // or exceeds a bound.
  virtual Result<std::vector<TextPiece>> Render(const ChatInput& input) const = 0;

  // True if the program defines `variable` for every template: a member of ChatInput or a function.
  static bool Sets(std::string_view variable);
  // True if the template mentions the name `variable`, so that setting it may have an effect.
  virtual bool Reads(std::string_view variable) const {
    (void)variable;
    return false;
  }
  // True if the template's source contains `text`, for example a tag that it writes or searches
  // for.
  virtual bool SourceContains(std::string_view text) const {
    (void)text;
    return false;
  }

  // The form of contents that the template takes: the form that is set, or else the form that its
  // source reads (src/text/content_form.h). Render passes contents unchanged; RenderMessages
  // (chat_messages.h) brings them into this form. `with_tools`: the form for conversations with
  // tools.
  ContentForm content_form(bool with_tools = false) const {
    return set_form_ ? *set_form_ : OwnContentForm(with_tools);
  }
  void SetContentForm(ContentForm form) { set_form_ = form; }
  // True if a content of text parts in a message of `role` may stay a list: that is the form that
  // is set, or the template renders each of its parts, whether it takes strings too or not.
  bool TakesParts(std::string_view role, bool with_tools = false) const {
    return set_form_ ? *set_form_ == ContentForm::kParts : OwnTakesParts(role, with_tools);
  }
  // The form of the arguments of tool calls that the template takes, as it renders them
  // (src/text/arguments_form.h). Render passes arguments unchanged; RenderMessages
  // (chat_messages.h) brings them into this form. `with_tools`: the form for conversations with
  // tools.
  virtual ArgumentsForm arguments_form(bool with_tools) const {
    (void)with_tools;
    return ArgumentsForm::kObject;
  }

 private:
  virtual ContentForm OwnContentForm(bool with_tools) const {
    (void)with_tools;
    return ContentForm::kString;
  }
  virtual bool OwnTakesParts(std::string_view role, bool with_tools) const {
    (void)role;
    return OwnContentForm(with_tools) == ContentForm::kParts;
  }

  std::optional<ContentForm> set_form_;
};

}  // namespace minisgl
