// The known reasoning tags, and the state machine of ReasoningSplitter.
#include "minisgl/text/reasoning.h"

#include <algorithm>

namespace minisgl {
namespace {

// A template that contains `close` belongs to a model with these tags: it removes the reasoning
// from earlier turns, or closes it if reasoning is switched off. The first match is used.
constexpr ReasoningTags kKnownTags[] = {
    // DeepSeek-R1, Qwen 3, QwQ, GLM 4.5, SmolLM 3, EXAONE 4, Olmo 3, ...
    {"<think>", "</think>"},
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
    {"[THINK]", "[/THINK]"},                     // Magistral, Ministral 3
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A, Command R7B
    {"<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>", false,
     "<|channel|>final<|message|>", "<|end|>"},  // gpt-oss
};

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string_view TrimLeft(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
}

std::string_view TrimRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

// Returns the number of bytes at the end of `text` that may be the beginning of `tag`.
size_t TagBeginning(std::string_view text, std::string_view tag) {
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (tag.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
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
    *kept = std::move(control);
    return tags;
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
  result.starts_inside = TrimRight(end).ends_with(tags.open);
  return result;
}

ReasoningSplitter::ReasoningSplitter(const ReasoningTags& tags)
    : tags_(tags), state_(tags.none() ? State::kText : State::kStart) {}

ReasoningPiece ReasoningSplitter::Push(std::string_view text) {
  ReasoningPiece piece;
  held_ += text;
  bool goes_on = true;
  while (goes_on) {
    switch (state_) {
      case State::kStart:
        goes_on = TakeStart();
        break;
      case State::kInside:
        goes_on = TakeInside(&piece);
        break;
      case State::kBetween:
        goes_on = TakeBetween();
        break;
      case State::kText:
        piece.text += held_;
        held_.clear();
        goes_on = false;
        break;
    }
  }
  return piece;
}

// Accepts the opening tag even if the prompt has opened it: some models repeat it.
bool ReasoningSplitter::TakeStart() {
  const std::string_view rest = TrimLeft(held_);
  const auto may_become = [&rest](std::string_view tag) {
    return rest.size() < tag.size() && tag.starts_with(rest);
  };
  if (may_become(tags_.open) || may_become(tags_.answer)) return false;
  const auto take = [&](std::string_view tag, State next) {
    held_.erase(0, held_.size() - rest.size() + tag.size());
    state_ = next;
  };
  if (rest.starts_with(tags_.open)) {
    take(tags_.open, State::kInside);
  } else if (!tags_.answer.empty() && rest.starts_with(tags_.answer)) {
    take(tags_.answer, State::kBetween);
  } else {
    state_ = tags_.starts_inside ? State::kInside : State::kText;
  }
  return true;
}

bool ReasoningSplitter::TakeInside(ReasoningPiece* piece) {
  const size_t close = held_.find(tags_.close);
  std::string_view certain = held_;
  size_t taken = 0;
  if (close != std::string::npos) {
    certain = certain.substr(0, close);
    taken = close + tags_.close.size();
    state_ = State::kBetween;
  } else {
    certain.remove_suffix(TagBeginning(held_, tags_.close));
  }
  certain = TrimRight(certain);
  if (close == std::string::npos) taken = certain.size();
  if (!reasoning_began_) certain = TrimLeft(certain);
  reasoning_began_ = reasoning_began_ || !certain.empty();
  piece->reasoning += certain;
  held_.erase(0, taken);
  return close != std::string::npos;
}

bool ReasoningSplitter::TakeBetween() {
  held_.erase(0, held_.size() - TrimLeft(held_).size());
  if (held_.empty()) return false;
  state_ = State::kText;
  return true;
}

ReasoningPiece ReasoningSplitter::Finish() {
  ReasoningPiece piece;
  const bool inside = state_ == State::kInside || (state_ == State::kStart && tags_.starts_inside);
  if (inside) {
    piece.reasoning = TrimRight(reasoning_began_ ? std::string_view(held_) : TrimLeft(held_));
  } else {
    piece.text = std::move(held_);
  }
  held_.clear();
  state_ = State::kText;
  return piece;
}

ReasoningPiece SplitReasoning(const ReasoningTags& tags, std::string_view text) {
  ReasoningSplitter splitter(tags);
  ReasoningPiece whole = splitter.Push(text);
  const ReasoningPiece end = splitter.Finish();
  whole.reasoning += end.reasoning;
  whole.text += end.text;
  return whole;
}

ReasoningPiece SplitReasoningExactly(const ReasoningTags& tags, std::string_view text) {
  const std::string_view begin = TrimLeft(text);
  const bool opens = !tags.none() && begin.starts_with(tags.open);
  if (!tags.answer.empty() && begin.starts_with(tags.answer)) {
    return {"", std::string(begin.substr(tags.answer.size()))};
  }
  if (!opens && !tags.starts_inside) return {"", std::string(text)};
  if (opens) text = begin.substr(tags.open.size());
  const size_t close = text.find(tags.close);
  if (close == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, close)), std::string(text.substr(close + tags.close.size()))};
}

}  // namespace minisgl
