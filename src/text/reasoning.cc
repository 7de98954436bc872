// The known reasoning tags, and the state machine of ReasoningSplitter.
#include "minisgl/text/reasoning.h"

#include <algorithm>

namespace minisgl {
namespace {

// A template that contains `close` belongs to a model with these tags: it removes the reasoning
// from earlier turns, or closes it if reasoning is switched off. The first match is used.
constexpr ReasoningTags kKnownTags[] = {
    // DeepSeek-R1, Qwen 3, QwQ, GLM 4.5, SmolLM 3, EXAONE 4, Olmo 3, MiniMax, Nemotron, ...
    {"<think>", "</think>"},
    {"<seed:think>", "</seed:think>"},                        // Seed-OSS
    {"[THINK]", "[/THINK]"},                                  // Magistral, Ministral 3
    {"<|START_THINKING|>", "<|END_THINKING|>"},               // Command A, Command R7B
    {"<|inner_prefix|>", "<|inner_suffix|>"},                 // Apertus
    {"<thought>", "</thought>"},                              // EXAONE Deep
    {"<longcat_think>", "</longcat_think>"},                  // LongCat-Flash-Thinking
    {"<reasoning>", "</reasoning>"},                          // Reka Flash 3
    {"\u25c1think\u25b7", "\u25c1/think\u25b7"},              // Kimi-VL-Thinking, Kimi k1.5
    {"Here is my thought process:", "Here is my response:"},  // Granite 3.2
    {"<|channel>", "<channel|>", false, "", "", "thought"},   // Gemma 4
    {"<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>", false,
     "<|channel|>final<|message|>", "<|end|>"},  // gpt-oss
};

// The tags around the answer, if the template contains the closing one.
struct WrapTags {
  std::string_view open, close;
};
constexpr WrapTags kWrapTags[] = {
    {"<response>", "</response>"},  // Granite 3.3, ERNIE 4.5 Thinking
    {"<answer>", "</answer>"},      // Hunyuan
};

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBesideTags) + 1);
}

// Appends the control tokens in the encoding of `tag`.
void AddControlTokens(std::string_view tag, const Tokenizer& tokenizer, std::vector<TokenId>* ids) {
  const TextPiece piece{std::string(tag), true};
  const Result<std::vector<TokenId>> encoded = tokenizer.Encode(std::span(&piece, 1));
  if (!encoded.ok()) return;
  for (const TokenId id : *encoded) {
    const bool known = std::find(ids->begin(), ids->end(), id) != ids->end();
    if (tokenizer.IsSpecial(id) && !known) ids->push_back(id);
  }
}

ReasoningTags WithWrap(ReasoningTags tags, const ChatTemplate& chat) {
  if (tags.open != "<think>") return tags;
  for (const WrapTags& wrap : kWrapTags) {
    if (!chat.SourceContains(wrap.close)) continue;
    tags.answer = tags.wrap_open = wrap.open;
    tags.wrap_close = wrap.close;
    break;
  }
  return tags;
}

ThoughtTags PlainTags(const ReasoningTags& tags) {
  return {std::string(tags.open), std::string(tags.close),     std::string(tags.answer),
          std::string(tags.name), std::string(tags.wrap_open), std::string(tags.wrap_close)};
}

}  // namespace

ReasoningTags FindReasoningTags(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                std::vector<TokenId>* kept) {
  for (const ReasoningTags& tags : kKnownTags) {
    // The template of gpt-oss does not contain `close` in one piece: it writes the beginning of an
    // assistant turn separately from the channel.
    const std::string_view known = tags.answer.empty() ? tags.close : tags.answer;
    if (!chat.SourceContains(known)) continue;
    std::vector<TokenId> control;
    for (const std::string_view tag : {tags.open, tags.close, tags.answer}) {
      AddControlTokens(tag, tokenizer, &control);
    }
    if (kept == nullptr) return control.empty() ? tags : ReasoningTags();
    if (tags.in_channels() && !control.empty()) {
      for (const std::string_view token : kChannelTokens) {
        AddControlTokens(token, tokenizer, &control);
      }
    }
    *kept = std::move(control);
    return WithWrap(tags, chat);
  }
  return {};
}

ReasoningTags WithPrompt(const ReasoningTags& tags, std::span<const TextPiece> pieces) {
  ReasoningTags result = tags;
  if (tags.none()) return result;
  std::string end;
  for (size_t i = pieces.size(); i > 0 && pieces[i - 1].trusted; --i) {
    end.insert(0, pieces[i - 1].text);
  }
  const std::string_view trimmed = TrimRight(end);
  result.starts_inside = trimmed.ends_with(tags.open);
  if (!tags.name.empty() && trimmed.ends_with(std::string(tags.open) + std::string(tags.name))) {
    result.starts_inside = true;
    result.name = "";
  }
  result.is_closed = !result.starts_inside && end.find(tags.close) != std::string::npos;
  return result;
}

ReasoningSplitter::ReasoningSplitter(const ReasoningTags& tags)
    : reader_(PlainTags(tags), tags.starts_inside, tags.is_closed) {}

ReasoningPiece ReasoningSplitter::Take(const std::vector<AnswerPart>& parts) {
  ReasoningPiece whole;
  for (const AnswerPart& part : parts) {
    ReasoningPiece piece = maker_.Push(part.text, {{part.kind, part.text.size()}});
    whole.reasoning += piece.reasoning;
    whole.text += piece.text;
  }
  return whole;
}

ReasoningPiece ReasoningSplitter::Push(std::string_view text) { return Take(reader_.Push(text)); }

ReasoningPiece ReasoningSplitter::Finish() { return Take(reader_.Finish()); }

TextParts PartsOfText(const ReasoningTags& tags, std::string_view text) {
  ThoughtReader reader(PlainTags(tags), tags.starts_inside, tags.is_closed);
  TextParts parts;
  for (const AnswerPart& part : reader.Push(text)) AddPart(part.kind, part.text.size(), &parts);
  for (const AnswerPart& part : reader.Finish()) AddPart(part.kind, part.text.size(), &parts);
  return parts;
}

ReasoningPiece SplitReasoning(const ReasoningTags& tags, std::string_view text) {
  return SplitParts(text, PartsOfText(tags, text));
}

ReasoningPiece SplitReasoningExactly(const ReasoningTags& tags, std::string_view text) {
  return SplitPartsExactly(text, PartsOfText(tags, text));
}

}  // namespace minisgl
