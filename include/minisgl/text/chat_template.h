// A model's chat template: a small interpreter of the Jinja that model directories contain.
//
// Templates are hostile: nesting is at most 128 deep in the parser and 500 nodes deep in evaluation
// (macros included), work at most 1 M node visits and 512 MiB of values built, output and any text
// at most 16 MiB, range at most 100,000; they reach no file and no attribute but those listed.
// Rendering matches Jinja2 with trim_blocks, lstrip_blocks and loop controls, as the transformers
// library sets it up. Immutable once parsed; Render may be called from any thread.
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

// Of a template's source: far above real ones.
inline constexpr uint64_t kTemplateBytesMax = uint64_t{1} << 20;

// What a template sees.
struct ChatInput {
  // An array of {role, content, ...}. Strings inside count as untrusted text, but for a role that
  // is a word (letters, digits, `_`, `-`): it can name a marker like `<|user|>`, and spell none.
  // As in the transformers library, a member that is null is left out, and what stands under
  // reasoning_content, thinking or reasoning stands under the first two.
  Json messages;
  bool add_generation_prompt = true;
  std::string bos_token, eos_token, unk_token, pad_token;  // "": the template sees none defined
  Json tools;                                              // null or an array
  Json documents;                                          // null or an array
  // Null or an object: chat_template_kwargs. Untrusted but for words; what the program sets
  // (ChatTemplate::Sets) stays as it is.
  Json extra;
  // What strftime_now reads, in seconds since 1970; unset: the clock.
  std::optional<int64_t> now;
  // Rendering ends with an error soon after this became true; null: it cannot be cancelled.
  const std::atomic<bool>* cancelled = nullptr;
};

class ChatTemplate {
 public:
  // `name` (a file) stands in errors, with the template's line.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source,
                                                     const std::string& name);
  // The template of a model directory: chat_template.jinja and
  // additional_chat_templates/NAME.jinja, else chat_template of tokenizer_config.json (a string, or
  // a list of named ones), else chat_template.json. Of several, "default" counts, and "tool_use"
  // where tools are given. A null pointer where there is none.
  static Result<std::unique_ptr<ChatTemplate>> Load(const std::string& model_dir);
  // The one of them that is called `name` (the only one is called "default"); kNoInput where none
  // is.
  static Result<std::unique_ptr<ChatTemplate>> LoadNamed(const std::string& model_dir,
                                                         const std::string& name);

  virtual ~ChatTemplate() = default;

  // The rendered text; a piece is untrusted where it came out of `messages`, `tools` or
  // `documents`, through whatever filters. kBadInput with the template's line where it refuses
  // (raise_exception) or breaks a bound.
  virtual Result<std::vector<TextPiece>> Render(const ChatInput& input) const = 0;

  // Whether every template has `variable` from the program: a member of ChatInput, or a function.
  static bool Sets(std::string_view variable);
  // Whether the template speaks of `variable`, and so can be told something by it.
  virtual bool Reads(std::string_view variable) const {
    (void)variable;
    return false;
  }
  // Whether `text` stands in the template's source, as a tag does that it writes or looks for.
  virtual bool Spells(std::string_view text) const {
    (void)text;
    return false;
  }
};

}  // namespace minisgl
