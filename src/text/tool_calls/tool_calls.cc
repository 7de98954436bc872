#include "minisgl/text/tool_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/tool_calls/call_dialect.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_span.h"

namespace minisgl {
namespace {

constexpr ToolDialectName kToolDialectNames[] = {
    {ToolDialect::kHermes, "hermes"},
    {ToolDialect::kQwen3Coder, "qwen3_coder"},
    {ToolDialect::kLlama3Json, "llama3_json"},
    {ToolDialect::kMistral, "mistral"},
    {ToolDialect::kMistralV3, "mistral_v3"},
    {ToolDialect::kHarmony, "harmony"},
    {ToolDialect::kGemma4, "gemma4"},
    {ToolDialect::kGlm4, "glm4"},
    {ToolDialect::kDeepseekV3, "deepseek_v3"},
    {ToolDialect::kDeepseekV31, "deepseek_v31"},
    {ToolDialect::kGranite, "granite"},
    {ToolDialect::kPythonic, "pythonic"},
    {ToolDialect::kDsml, "dsml"},
    {ToolDialect::kKimiK2, "kimi_k2"},
    {ToolDialect::kMinimaxM2, "minimax_m2"},
};

// A template that contains all of `marks` belongs to a model that writes this dialect. The first
// match is used.
struct DialectSign {
  ToolDialect dialect = ToolDialect::kNone;
  std::array<std::string_view, 2> marks;
};
constexpr DialectSign kDialectSigns[] = {
    {ToolDialect::kHarmony, {"<|channel|>", "<|message|>"}},
    {ToolDialect::kDsml, {"\uff5cDSML\uff5c", ""}},
    {ToolDialect::kKimiK2, {"<|tool_call_begin|>", ""}},
    {ToolDialect::kDeepseekV3, {"<\uff5ctool\u2581call\u2581begin\uff5c>", "```json"}},
    {ToolDialect::kDeepseekV31, {"<\uff5ctool\u2581call\u2581begin\uff5c>", ""}},
    {ToolDialect::kMinimaxM2, {"<minimax:tool_call>", ""}},
    {ToolDialect::kGemma4, {"<|tool_call>", ""}},
    {ToolDialect::kMistral, {"[TOOL_CALLS]", "[ARGS]"}},
    {ToolDialect::kMistralV3, {"[TOOL_CALLS]", ""}},
    {ToolDialect::kGlm4, {"<arg_key>", "<arg_value>"}},
    {ToolDialect::kQwen3Coder, {"<function=", "<parameter="}},
    {ToolDialect::kPythonic, {"<|tool_call_start|>", ""}},  // LFM2
    {ToolDialect::kPythonic, {"<|tool_list_start|>", ""}},  // LFM2
    {ToolDialect::kPythonic, {"<|python_start|>", ""}},     // Llama 4
    {ToolDialect::kPythonic, {"<function_calls>", ""}},     // OLMo 3
    {ToolDialect::kPythonic, {"[func_name1(", ""}},         // Llama 3.2
    {ToolDialect::kHermes, {"<tool_call>", ""}},
    {ToolDialect::kGranite, {"<|tool_call|>", ""}},
    {ToolDialect::kLlama3Json, {"<|python_tag|>", ""}},
    {ToolDialect::kLlama3Json, {"<|eom_id|>", ""}},
    {ToolDialect::kLlama3Json, {"ipython", "\"parameters\""}},
};

// A template that reads tools, but writes no calls, belongs to a model that has the mark of its
// dialect in the vocabulary.
struct VocabularySign {
  ToolDialect dialect = ToolDialect::kNone;
  std::string_view mark;
};
constexpr VocabularySign kVocabularySigns[] = {
    {ToolDialect::kPythonic, "<|tool_call_start|>"},
    {ToolDialect::kPythonic, "<|python_start|>"},
    {ToolDialect::kGemma4, "<|tool_call>"},
    {ToolDialect::kMistral, "[ARGS]"},
    {ToolDialect::kMistralV3, "[TOOL_CALLS]"},
    {ToolDialect::kMinimaxM2, "<minimax:tool_call>"},
    {ToolDialect::kGlm4, "<arg_key>"},
    {ToolDialect::kHermes, "<tool_call>"},
    {ToolDialect::kGranite, "<|tool_call|>"},
};

// The marks of dialects that some vocabulary has as control tokens.
struct DialectMarks {
  ToolDialect dialect = ToolDialect::kNone;
  std::array<std::string_view, 6> marks;
};
constexpr DialectMarks kDialectMarks[] = {
    {ToolDialect::kHermes, {"<tool_call>", "</tool_call>"}},
    {ToolDialect::kQwen3Coder, {"<tool_call>", "</tool_call>"}},
    {ToolDialect::kLlama3Json, {"<|python_tag|>"}},
    {ToolDialect::kMistral, {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
    {ToolDialect::kMistralV3, {"[TOOL_CALLS]"}},
    {ToolDialect::kHarmony,
     {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>"}},
    {ToolDialect::kGemma4, {"<|tool_call>", "<tool_call|>", "<|\"|>"}},
    {ToolDialect::kGlm4,
     {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
    {ToolDialect::kDeepseekV3,
     {"<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>",
      "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>",
      "<\uff5ctool\u2581sep\uff5c>"}},
    {ToolDialect::kDeepseekV31,
     {"<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>",
      "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>",
      "<\uff5ctool\u2581sep\uff5c>"}},
    {ToolDialect::kGranite, {"<|tool_call|>"}},
    {ToolDialect::kPythonic,
     {"<|tool_call_start|>", "<|tool_call_end|>", "<|python_start|>", "<|python_end|>",
      "<function_calls>", "</function_calls>"}},
    {ToolDialect::kDsml, {"\uff5cDSML\uff5c"}},
    {ToolDialect::kKimiK2,
     {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
      "<|tool_call_end|>", "<|tool_call_argument_begin|>"}},
    {ToolDialect::kMinimaxM2, {"<minimax:tool_call>", "</minimax:tool_call>"}},
};

std::unique_ptr<text::CallDialect> MakeDialect(ToolDialect dialect, const Json& tools) {
  switch (dialect) {
    case ToolDialect::kHermes:
      return text::MakeHermes();
    case ToolDialect::kQwen3Coder:
      return text::MakeQwen3Coder(text::ToolTypes(tools));
    case ToolDialect::kLlama3Json:
      return text::MakeLlama3Json();
    case ToolDialect::kMistral:
      return text::MakeMistral(/*gives_broken=*/true);
    case ToolDialect::kMistralV3:
      return text::MakeMistral(/*gives_broken=*/false);
    case ToolDialect::kGemma4:
      return text::MakeGemma4();
    case ToolDialect::kGlm4:
      return text::MakeGlm4(text::ToolTypes(tools));
    case ToolDialect::kDeepseekV3:
      return text::MakeDeepseekV3();
    case ToolDialect::kDeepseekV31:
      return text::MakeDeepseekV31();
    case ToolDialect::kGranite:
      return text::MakeGranite();
    case ToolDialect::kPythonic:
      return text::MakePythonic();
    case ToolDialect::kDsml:
      return text::MakeDsml(text::ToolTypes(tools));
    case ToolDialect::kKimiK2:
      return text::MakeKimiK2();
    case ToolDialect::kMinimaxM2:
      return text::MakeMinimaxM2(text::ToolTypes(tools));
    case ToolDialect::kHarmony:
    case ToolDialect::kNone:
      break;
  }
  return nullptr;
}

std::unique_ptr<text::CallReader> MakeReader(ToolDialect dialect, const Json& tools) {
  if (dialect == ToolDialect::kHarmony) return text::MakeHarmonyReader();
  return text::MakeMarkedReader(MakeDialect(dialect, tools));
}

ToolCallPiece ReadWhole(text::CallReader& reader, std::string_view text, const TextParts& parts) {
  ToolCallPiece whole = reader.Push(text, parts);
  ToolCallPiece rest = reader.Finish();
  whole.reasoning += rest.reasoning;
  whole.content += rest.content;
  std::ranges::move(rest.calls, std::back_inserter(whole.calls));
  return whole;
}

// The parts before a bare closing tag as reasoning.
TextParts WithThoughtBeforeBareClose(const TextParts& parts) {
  const auto bare = std::ranges::find(parts, PartKind::kBareClose, &TextPart::kind);
  if (bare == parts.end()) return parts;
  TextParts result;
  for (auto part = parts.begin(); part != bare; ++part) {
    const bool is_text = part->kind == PartKind::kText;
    AddPart(is_text ? PartKind::kThought : part->kind, part->size, &result);
  }
  for (auto part = bare; part != parts.end(); ++part) {
    const bool is_bare = part->kind == PartKind::kBareClose;
    AddPart(is_bare ? PartKind::kTag : part->kind, part->size, &result);
  }
  return result;
}

// The parts of an answer of Gemma 4, whose tags are control tokens: they open thoughts anywhere but
// in the strings of calls.
TextParts GemmaParts(std::string_view text) {
  constexpr std::string_view kTags[] = {"<|channel>", "<channel|>"};
  constexpr std::string_view kQuote = "<|\"|>";
  std::string marked;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    in_string = in_string != rest.starts_with(kQuote);
    const bool is_tag = rest.starts_with(kTags[0]) || rest.starts_with(kTags[1]);
    if (is_tag && !in_string) marked += kControlMark;
    marked += text[at];
  }
  ThoughtTags tags;
  tags.open = kControlMark + std::string(kTags[0]);
  tags.close = kControlMark + std::string(kTags[1]);
  tags.name = "thought";
  ThoughtReader reader(tags, /*starts_inside=*/false, /*is_closed=*/false);
  TextParts parts;
  for (const AnswerPart& part : reader.Push(marked)) AddPart(part.kind, part.text.size(), &parts);
  for (const AnswerPart& part : reader.Finish()) AddPart(part.kind, part.text.size(), &parts);
  return parts;
}

// The tags of a dialect's models, as they are spelled in `text`.
ReasoningTags SpelledTags(ToolDialect dialect, std::string_view text) {
  switch (dialect) {
    case ToolDialect::kMistral:
    case ToolDialect::kMistralV3:
      return {"[THINK]", "[/THINK]"};
    case ToolDialect::kGranite:
      break;
    default:
      return {"<think>", "</think>"};
  }
  constexpr std::string_view kWords = "Here is my thought process:";
  if (text::WithoutSpace(text).starts_with(kWords)) return {kWords, "Here is my response:"};
  ReasoningTags tags{"<think>", "</think>"};
  tags.answer = tags.wrap_open = "<response>";
  tags.wrap_close = "</response>";
  return tags;
}

}  // namespace

std::span<const ToolDialectName> ToolDialectNames() { return kToolDialectNames; }

std::string_view NameOf(ToolDialect dialect) {
  for (const ToolDialectName& entry : kToolDialectNames) {
    if (entry.dialect == dialect) return entry.name;
  }
  return "none";
}

std::optional<ToolDialect> FindToolDialect(std::string_view name) {
  for (const ToolDialectName& entry : kToolDialectNames) {
    if (entry.name == name) return entry.dialect;
  }
  return std::nullopt;
}

std::string ListToolDialects() {
  std::string list;
  for (const ToolDialectName& entry : kToolDialectNames) {
    const bool is_last = &entry == std::end(kToolDialectNames) - 1;
    if (!list.empty()) list += is_last ? " and " : ", ";
    list += entry.name;
  }
  return list;
}

ToolDialect DetectToolDialect(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  for (const DialectSign& sign : kDialectSigns) {
    const bool has_all = std::ranges::all_of(sign.marks, [&chat](std::string_view mark) {
      return mark.empty() || chat.SourceContains(mark);
    });
    if (has_all) return sign.dialect;
  }
  if (!chat.Reads("tools")) return ToolDialect::kNone;
  for (const VocabularySign& sign : kVocabularySigns) {
    if (tokenizer.IdOf(sign.mark)) return sign.dialect;
  }
  return ToolDialect::kNone;
}

std::vector<TokenId> ToolCallTokens(ToolDialect dialect, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const DialectMarks& entry : kDialectMarks) {
    if (entry.dialect != dialect) continue;
    for (const std::string_view mark : entry.marks) {
      const std::optional<TokenId> id = mark.empty() ? std::nullopt : tokenizer.IdOf(mark);
      if (id && tokenizer.IsSpecial(*id)) ids.push_back(*id);
    }
  }
  return ids;
}

ToolCallReader::ToolCallReader(ToolDialect dialect, const Json& tools)
    : reader_(MakeReader(dialect, tools)) {}
ToolCallReader::ToolCallReader(ToolCallReader&&) noexcept = default;
ToolCallReader& ToolCallReader::operator=(ToolCallReader&&) noexcept = default;
ToolCallReader::~ToolCallReader() = default;

ToolCallPiece ToolCallReader::Push(std::string_view text, const TextParts& parts) {
  return reader_->Push(text, parts);
}

ToolCallPiece ToolCallReader::Finish() { return reader_->Finish(); }

uint64_t ToolCallReader::num_steps() const { return reader_->num_steps(); }

ToolCallPiece ReadToolCalls(ToolDialect dialect, const Json& tools, std::string_view text,
                            const TextParts& parts) {
  const auto reader = MakeReader(dialect, tools);
  return ReadWhole(*reader, text, WithThoughtBeforeBareClose(parts));
}

ToolCallPiece ReadSpelledToolCalls(ToolDialect dialect, const Json& tools, std::string_view text) {
  const auto reader = MakeReader(dialect, tools);
  if (dialect == ToolDialect::kHarmony) {
    return ReadWhole(*reader, text, text::HarmonyParts(text));
  }
  if (dialect == ToolDialect::kGemma4) return ReadWhole(*reader, text, GemmaParts(text));
  ReasoningTags tags = SpelledTags(dialect, text);
  if (!text::WithoutSpace(text).starts_with(tags.open)) {
    // A closing tag in the content ends a thought that the prompt has opened.
    const size_t close = text.find(tags.close);
    std::vector<text::ContentRange> ranges;
    const auto trial = MakeReader(dialect, tools);
    trial->NoteContent(&ranges);
    ToolCallPiece whole = ReadWhole(*trial, text, {});
    const bool is_bare = close < text.find(tags.open);
    tags.starts_inside =
        is_bare && std::ranges::any_of(ranges, [close](const text::ContentRange& range) {
          return range.begin <= close && close < range.end;
        });
    const bool is_wrapped =
        !tags.wrap_open.empty() && text::WithoutSpace(text).starts_with(tags.wrap_open);
    if (!tags.starts_inside && !is_wrapped) return whole;
  }
  return ReadWhole(*reader, text, PartsOfText(tags, text));
}

}  // namespace minisgl
