#include "batch/call_notation.h"

#include <string>
#include <string_view>

#include "minisgl/text/thought_reader.h"

namespace minisgl::batch {
namespace {

// The marks of one vocabulary.
class Marks {
 public:
  explicit Marks(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The bytes of a mark in a constrained answer: if it is a control token, that token.
  std::string operator()(std::string_view spelling) const {
    const std::optional<TokenId> id = tokenizer_.IdOf(spelling);
    const bool is_control = id && tokenizer_.IsSpecial(*id);
    return (is_control ? std::string(1, kControlMark) : "") + std::string(spelling);
  }

  // True if it is one token.
  bool Has(std::string_view spelling) const { return tokenizer_.IdOf(spelling).has_value(); }

 private:
  const Tokenizer& tokenizer_;
};

CallNotation Hermes(const Marks& mark) {
  CallNotation notation;
  const std::string open = mark("<tool_call>");
  notation.call_begin = open + "\n{\"name\": \"";
  notation.name_end = "\", \"arguments\": ";
  notation.call_end = "}\n" + mark("</tool_call>");
  notation.separator = "\n";
  notation.quotes_name = true;
  notation.marks = {open};
  return notation;
}

// A call is all that an answer has.
CallNotation Llama3Json(const Marks& mark) {
  CallNotation notation;
  notation.call_begin = "{\"name\": \"";
  notation.name_end = "\", \"parameters\": ";
  notation.call_end = "}";
  notation.separator = "; ";
  notation.quotes_name = true;
  notation.excludes_objects = true;
  notation.stands_alone = true;
  notation.marks = {mark("<|python_tag|>"), "<function="};
  return notation;
}

CallNotation Mistral(const Marks& mark) {
  CallNotation notation;
  notation.call_begin = mark("[TOOL_CALLS]");
  notation.name_end = mark("[ARGS]");
  notation.marks = {notation.call_begin};
  return notation;
}

// A list of objects behind a mark.
CallNotation ObjectList(const std::string& mark) {
  CallNotation notation;
  notation.section_begin = mark + "[";
  notation.call_begin = "{\"name\": \"";
  notation.name_end = "\", \"arguments\": ";
  notation.call_end = "}";
  notation.separator = ", ";
  notation.section_end = "]";
  notation.quotes_name = true;
  notation.marks = {mark};
  return notation;
}

CallNotation Granite(const Marks& mark) {
  CallNotation notation = ObjectList(mark("<|tool_call|>"));
  notation.marks.insert(notation.marks.end(), {"<tool_call>", "<function_call>"});
  notation.not_first = "[";
  return notation;
}

CallNotation Deepseek(const Marks& mark, bool is_v3) {
  CallNotation notation;
  notation.section_begin = mark("<｜tool▁calls▁begin｜>");
  notation.call_begin = mark("<｜tool▁call▁begin｜>");
  notation.name_end = mark("<｜tool▁sep｜>");
  notation.call_end = mark("<｜tool▁call▁end｜>");
  notation.section_end = mark("<｜tool▁calls▁end｜>");
  notation.marks = {notation.section_begin, notation.call_begin};
  if (!is_v3) return notation;
  notation.call_begin += "function" + notation.name_end;
  notation.name_end = "\n```json\n";
  notation.call_end = "\n```" + notation.call_end;
  notation.separator = "\n";
  return notation;
}

CallNotation Harmony(const Marks& mark) {
  CallNotation notation;
  notation.call_begin = mark("<|channel|>") + "commentary to=functions.";
  notation.name_end = " " + mark("<|constrain|>") + "json" + mark("<|message|>");
  notation.in_header = true;
  notation.marks = {mark("<|channel|>")};
  return notation;
}

CallNotation KimiK2(const Marks& mark) {
  CallNotation notation;
  notation.section_begin = mark("<|tool_calls_section_begin|>");
  notation.call_begin = mark("<|tool_call_begin|>") + "functions.";
  notation.is_numbered = true;
  notation.name_end = mark("<|tool_call_argument_begin|>");
  notation.call_end = mark("<|tool_call_end|>");
  notation.section_end = mark("<|tool_calls_section_end|>");
  notation.marks = {notation.section_begin, mark("<|tool_call_section_begin|>"),
                    mark("<|tool_call_begin|>")};
  return notation;
}

CallNotation Qwen3Coder(const Marks& mark) {
  CallNotation notation;
  const std::string open = mark("<tool_call>");
  notation.call_begin = open + "\n<function=";
  notation.name_end = ">\n";
  notation.call_end = "</function>\n" + mark("</tool_call>");
  notation.separator = "\n";
  notation.arguments = ArgumentNotation::kElements;
  notation.key_begin = "<parameter=";
  notation.key_end = ">\n";
  notation.value_end = "\n</parameter>\n";
  notation.text_end = "</parameter>";
  notation.marks = {open, "<function="};
  return notation;
}

CallNotation Glm4(const Marks& mark) {
  CallNotation notation;
  const std::string open = mark("<tool_call>");
  notation.call_begin = open;
  notation.name_end = "\n";
  notation.call_end = mark("</tool_call>");
  notation.separator = "\n";
  notation.arguments = ArgumentNotation::kElements;
  notation.key_begin = mark("<arg_key>");
  notation.key_end = mark("</arg_key>") + "\n" + mark("<arg_value>");
  notation.text_end = mark("</arg_value>");
  notation.value_end = notation.text_end + "\n";
  notation.marks = {open};
  return notation;
}

CallNotation MinimaxM2(const Marks& mark) {
  CallNotation notation;
  notation.section_begin = mark("<minimax:tool_call>") + "\n";
  notation.call_begin = "<invoke name=\"";
  notation.name_end = "\">\n";
  notation.call_end = "</invoke>\n";
  notation.section_end = mark("</minimax:tool_call>");
  notation.arguments = ArgumentNotation::kElements;
  notation.key_begin = "<parameter name=\"";
  notation.key_end = "\">";
  notation.text_end = "</parameter>";
  notation.value_end = "</parameter>\n";
  notation.marks = {mark("<minimax:tool_call>"), "<invoke name="};
  return notation;
}

CallNotation Dsml(const Marks& mark) {
  CallNotation notation;
  const std::string name = mark("｜DSML｜");
  notation.section_begin = "<" + name + "function_calls>\n";
  notation.call_begin = "<" + name + "invoke name=\"";
  notation.name_end = "\">\n";
  notation.call_end = "</" + name + "invoke>\n";
  notation.section_end = "</" + name + "function_calls>";
  notation.arguments = ArgumentNotation::kElements;
  notation.key_begin = "<" + name + "parameter name=\"";
  notation.string_key_end = "\" string=\"true\">";
  notation.key_end = "\" string=\"false\">";
  notation.text_end = "</" + name + "parameter>";
  notation.value_end = notation.text_end + "\n";
  notation.marks = {"<" + name + "function_calls>", "<" + name + "tool_calls>",
                    "<" + name + "invoke name="};
  return notation;
}

CallNotation Gemma4(const Marks& mark) {
  CallNotation notation;
  const std::string open = mark("<|tool_call>");
  notation.call_begin = open + "call:";
  notation.name_end = "{";
  notation.call_end = "}" + mark("<tool_call|>");
  notation.arguments = ArgumentNotation::kQuotedMembers;
  notation.key_end = ":";
  notation.key_separator = ",";
  notation.text_end = mark("<|\"|>");
  notation.marks = {open};
  return notation;
}

// The marks of one family around a list, or lines of calls without a list, or a list without marks.
CallNotation Pythonic(const Marks& mark) {
  CallNotation notation;
  notation.section_begin = "[";
  notation.section_end = "]";
  notation.separator = ", ";
  notation.name_end = "(";
  notation.call_end = ")";
  notation.arguments = ArgumentNotation::kMembers;
  notation.key_end = "=";
  notation.key_separator = ", ";
  notation.not_first = "[";
  notation.marks = {mark("<|python_start|>"), mark("<|tool_call_start|>"),
                    mark("<function_calls>")};
  if (mark.Has("<|python_start|>")) {
    notation.section_begin = mark("<|python_start|>") + "[";
    notation.section_end = "]" + mark("<|python_end|>");
  } else if (mark.Has("<|tool_call_start|>")) {
    notation.section_begin = mark("<|tool_call_start|>") + "[";
    notation.section_end = "]" + mark("<|tool_call_end|>");
  } else if (mark.Has("<function_calls>")) {
    notation.section_begin = mark("<function_calls>") + "\n";
    notation.section_end = "\n" + mark("</function_calls>");
    notation.separator = "\n";
  } else {
    notation.stands_alone = true;
  }
  return notation;
}

}  // namespace

std::optional<CallNotation> NotationOf(ToolDialect dialect, const Tokenizer& tokenizer) {
  const Marks mark(tokenizer);
  switch (dialect) {
    case ToolDialect::kHermes:
      return Hermes(mark);
    case ToolDialect::kLlama3Json:
      return Llama3Json(mark);
    case ToolDialect::kMistral:
      return Mistral(mark);
    case ToolDialect::kMistralV3:
      return ObjectList(mark("[TOOL_CALLS]"));
    case ToolDialect::kGranite:
      return Granite(mark);
    case ToolDialect::kDeepseekV3:
      return Deepseek(mark, /*is_v3=*/true);
    case ToolDialect::kDeepseekV31:
      return Deepseek(mark, /*is_v3=*/false);
    case ToolDialect::kHarmony:
      return Harmony(mark);
    case ToolDialect::kKimiK2:
      return KimiK2(mark);
    case ToolDialect::kQwen3Coder:
      return Qwen3Coder(mark);
    case ToolDialect::kGlm4:
      return Glm4(mark);
    case ToolDialect::kMinimaxM2:
      return MinimaxM2(mark);
    case ToolDialect::kDsml:
      return Dsml(mark);
    case ToolDialect::kGemma4:
      return Gemma4(mark);
    case ToolDialect::kPythonic:
      return Pythonic(mark);
    case ToolDialect::kNone:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace minisgl::batch
