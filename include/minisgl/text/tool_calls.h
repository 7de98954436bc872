// Reads the calls of tools in a model's answer. Each family of models writes them in its own marks:
// its dialect.
//
// What is read follows the same rules in every dialect:
// - Arguments are given as JSON text, with all digits of a number and the order of keys as the
//   model wrote them. Values that are written as bare text (in marks like those of XML) take the
//   type that the tool's schema has for the parameter: a string stays the text, anything else is
//   read as JSON if it is JSON, and is the text if not. Without a type in the schema a value is
//   text in kQwen3Coder and kMinimaxM2, as for the readers published with these models, and is read
//   as JSON in kGlm4.
// - Text that is no call is content. So is a broken call, from its first mark to its last one, or
//   to the end of the answer. Exceptions: kMistral and kHarmony divide the arguments from the rest
//   by control tokens, so broken arguments are given as they are.
// - A call that lacks nothing but marks at the end of the answer is a call.
// - White space beside a call's marks is no content. Between two pieces of content that calls
//   divide, the white space before the calls stays, or the one behind them if there is none before.
// - Reasoning holds no calls.
// - Names of tools are not checked.
//
// The answers are hostile input: nesting is bounded by kJsonDepthMax, and time is linear in the
// text, whether it is given at once or in pieces. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/text/answer_parts.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

enum class ToolDialect : uint8_t {
  kNone,         // no calls are read
  kHermes,       // Qwen 2.5 and 3, Hermes, Granite 4
  kQwen3Coder,   // Qwen3-Coder, Qwen 3.5
  kLlama3Json,   // Llama 3.1 to 3.3
  kMistral,      // Mistral, tokenizers of version 11 and later
  kMistralV3,    // Mistral, tokenizers of version 3 and 7
  kHarmony,      // gpt-oss
  kGemma4,       // Gemma 4
  kGlm4,         // GLM 4.5 to 4.7
  kDeepseekV3,   // DeepSeek V3, R1
  kDeepseekV31,  // DeepSeek V3.1
  kGranite,      // Granite 3
  kPythonic,     // Llama 3.2 and 4, OLMo 3, LFM2
  kDsml,         // DeepSeek V3.2 and V4
  kKimiK2,       // Kimi K2
  kMinimaxM2,    // MiniMax M2
};

struct ToolDialectName {
  ToolDialect dialect = ToolDialect::kNone;
  std::string_view name;
};
// All dialects and their names, without kNone.
std::span<const ToolDialectName> ToolDialectNames();
// "none" for kNone.
std::string_view NameOf(ToolDialect dialect);
std::optional<ToolDialect> FindToolDialect(std::string_view name);
// The names, as "hermes, qwen3_coder, ... and minimax_m2".
std::string ListToolDialects();

// Returns the dialect that the template's source and the vocabulary tell of; kNone if they tell of
// none.
ToolDialect DetectToolDialect(const ChatTemplate& chat, const Tokenizer& tokenizer);

// The control tokens among the marks of a dialect. An answer's text has them only if they are in
// Prompt::kept_special_ids.
std::vector<TokenId> ToolCallTokens(ToolDialect dialect, const Tokenizer& tokenizer);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object; whatever stands there if the dialect says so
  std::string id;         // "" unless the model wrote one
  bool operator==(const ToolCall&) const = default;
};

// Newly decided output, or that of a whole answer. `reasoning` and `content` go on where the last
// ones ended.
struct ToolCallPiece {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // finished, in order
  bool operator==(const ToolCallPiece&) const = default;
};

namespace text {
class CallReader;
}

class ToolCallReader {
 public:
  // `tools`: the row's tools, an array of {"type": "function", "function": {"name", "parameters"}}
  // or of {"name", "parameters"}; or null.
  ToolCallReader(ToolDialect dialect, const Json& tools);
  ToolCallReader(ToolCallReader&&) noexcept;
  ToolCallReader& operator=(ToolCallReader&&) noexcept;
  ~ToolCallReader();

  // Takes more of an answer's text with its parts: Event::text and Event::parts. Without parts all
  // of it is the answer. The concatenated results do not depend on how the text is divided among
  // calls. After PartKind::kBareClose, what was given stays as it is.
  ToolCallPiece Push(std::string_view text, const TextParts& parts);
  // Returns what is held back, at the end of the answer. No call may follow.
  ToolCallPiece Finish();

  // The number of bytes examined so far, each as often as it was: an upper bound on time.
  uint64_t num_steps() const;

 private:
  std::unique_ptr<text::CallReader> reader_;
};

// Reads a whole answer. With PartKind::kBareClose, all before it is reasoning.
ToolCallPiece ReadToolCalls(ToolDialect dialect, const Json& tools, std::string_view text,
                            const TextParts& parts);

// Reads a whole answer whose marks and tags of reasoning are spelled in its text. Tags are known by
// the models that write the dialect.
ToolCallPiece ReadSpelledToolCalls(ToolDialect dialect, const Json& tools, std::string_view text);

}  // namespace minisgl
