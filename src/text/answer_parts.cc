#include "minisgl/text/answer_parts.h"

#include <algorithm>
#include <utility>

namespace minisgl {
namespace {

// Calls `take(kind, text)` for each part, and for text behind them as for an answer.
template <typename Take>
void ForEachPart(std::string_view text, const TextParts& parts, const Take& take) {
  for (const TextPart& part : parts) {
    take(part.kind, text.substr(0, part.size));
    text.remove_prefix(std::min(part.size, text.size()));
  }
  if (!text.empty()) take(PartKind::kText, text);
}

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBesideTags), text.size()));
  return text.substr(0, text.find_last_not_of(kBesideTags) + 1);
}

}  // namespace

void AddPart(PartKind kind, size_t size, TextParts* parts) {
  if (size == 0) return;
  if (!parts->empty() && parts->back().kind == kind) {
    parts->back().size += size;
  } else {
    parts->push_back({kind, size});
  }
}

TextParts PartsFrom(const TextParts& parts, size_t begin) {
  TextParts rest;
  for (const TextPart& part : parts) {
    const size_t cut = std::min(begin, part.size);
    begin -= cut;
    AddPart(part.kind, part.size - cut, &rest);
  }
  return rest;
}

void PieceMaker::AddThought(std::string_view thought, std::string* reasoning) {
  const size_t begin = std::min(thought.find_first_not_of(kBesideTags), thought.size());
  if (!any_thought_ || begins_another_) thought.remove_prefix(begin);
  if (thought.empty()) return;
  if (std::exchange(begins_another_, false) && any_thought_) *reasoning += "\n\n";
  any_thought_ = true;
  const size_t end = thought.find_last_not_of(kBesideTags) + 1;
  if (end > 0) *reasoning += std::exchange(blanks_, std::string());
  *reasoning += thought.substr(0, end);
  blanks_ += thought.substr(end);
}

ReasoningPiece PieceMaker::Push(std::string_view text, const TextParts& parts) {
  ReasoningPiece piece;
  ForEachPart(text, parts, [&](PartKind kind, std::string_view part) {
    if (kind == PartKind::kText) piece.text += part;
    if (kind == PartKind::kThought) return AddThought(part, &piece.reasoning);
    begins_another_ = true;
    blanks_.clear();
  });
  return piece;
}

ReasoningPiece SplitParts(std::string_view text, const TextParts& parts) {
  const auto bare = std::find_if(parts.begin(), parts.end(), [](const TextPart& part) {
    return part.kind == PartKind::kBareClose;
  });
  PieceMaker maker;
  if (bare == parts.end()) return maker.Push(text, parts);
  size_t before = 0;
  for (auto part = parts.begin(); part != bare; ++part) before += part->size;
  const std::string_view thought = Trimmed(text.substr(0, before));
  ReasoningPiece whole = maker.Push(thought, {{PartKind::kThought, thought.size()}});
  ReasoningPiece rest = maker.Push(text.substr(before), PartsFrom(parts, before));
  whole.reasoning += rest.reasoning;
  whole.text += rest.text;
  return whole;
}

ReasoningPiece SplitPartsExactly(std::string_view text, const TextParts& parts) {
  ReasoningPiece whole;
  ForEachPart(text, parts, [&whole](PartKind kind, std::string_view part) {
    if (kind == PartKind::kText || kind == PartKind::kSpace) whole.text += part;
    if (kind == PartKind::kThought) whole.reasoning += part;
    if (kind == PartKind::kBareClose) {
      whole.reasoning = std::move(whole.text);
      whole.text.clear();
    }
  });
  return whole;
}

}  // namespace minisgl
