#include "grammar/pattern_language.h"

#include <algorithm>
#include <utility>

namespace minisgl::grammar {

namespace {

// A piece that matches no text, only places.
bool IsAssertion(const Piece& piece) { return piece.longest == 0; }

// An assertion on the text before it, except within a lookahead.
bool LooksBack(const Piece& piece) {
  return IsAssertion(piece) && piece.reach > 0 && piece.kind != PieceKind::kAhead;
}

}  // namespace

Result<ExpressionId> PatternLanguage::Of(const PiecePointer& whole, ExpressionId around) {
  const Run before = {around, 0, true};
  const ExpressionId language = Walk(Prepend(whole, nullptr), before, around);
  MINISGL_RETURN_IF_ERROR(status_);
  MINISGL_RETURN_IF_ERROR(set_.status());
  if (language == set_.Nothing() && impossible_ != nullptr) {
    const bool begin = impossible_->kind == PieceKind::kBegin;
    return error_at_(impossible_->at, begin ? "`^` is supported at the beginning only"
                                            : "`$` is supported at the end only");
  }
  return language;
}

ExpressionId PatternLanguage::Fail(size_t at, const std::string& what) {
  if (status_.ok()) status_ = error_at_(at, what);
  return set_.Nothing();
}

ExpressionId PatternLanguage::Impossible(const Piece& anchor) {
  if (impossible_ == nullptr) impossible_ = &anchor;
  return set_.Nothing();
}

const PatternLanguage::Rest* PatternLanguage::Prepend(PiecePointer head, const Rest* tail) {
  Rest rest;
  rest.tail = tail;
  rest.reach = std::max(head->reach, ReachBefore(ReachOf(tail), head->shortest));
  rest.head = std::move(head);
  rests_.push_back(std::move(rest));
  return &rests_.back();
}

const PatternLanguage::Rest* PatternLanguage::PrependAll(const std::vector<PiecePointer>& parts,
                                                         const Rest* tail) {
  steps_ += static_cast<int>(std::min<size_t>(parts.size(), kStepsMax));
  for (size_t i = parts.size(); i-- > 0;) tail = Prepend(parts[i], tail);
  return tail;
}

ExpressionId PatternLanguage::Walk(const Rest* rest, Run before, ExpressionId behind) {
  const size_t at = rest == nullptr ? 0 : rest->head->at;
  if (++steps_ > kStepsMax || depth_ >= kDepthMax) {
    return Fail(at, "the assertions are too many together");
  }
  ++depth_;
  const ExpressionId language = WalkSteps(rest, before, behind);
  --depth_;
  return language;
}

ExpressionId PatternLanguage::WalkSteps(const Rest* rest, Run before, ExpressionId behind) {
  while (rest != nullptr && status_.ok() && set_.status().ok()) {
    if (before.language == set_.Nothing()) return before.language;
    const Piece& piece = *rest->head;
    switch (piece.kind) {
      case PieceKind::kPlain:
        before.language = set_.Concat({before.language, piece.language});
        before.shortest = AddLengths(before.shortest, piece.shortest);
        rest = rest->tail;
        break;
      case PieceKind::kSequence:
        rest = PrependAll(piece.parts, rest->tail);
        if (steps_ > kStepsMax) return Fail(piece.at, "the assertions are too many together");
        break;
      case PieceKind::kBegin:
        if (!before.at_start || !set_.IsNullable(before.language)) return Impossible(piece);
        before = NoText(true);
        rest = rest->tail;
        break;
      case PieceKind::kBehind:
        if (!LookBehind(piece, &before)) return set_.Nothing();
        rest = rest->tail;
        break;
      case PieceKind::kEnd:
      case PieceKind::kAhead:
        return WalkAhead(rest, before, behind);
      case PieceKind::kAlternatives:
        return WalkAlternatives(rest, before, behind);
      case PieceKind::kRepeat:
        return WalkRepeat(rest, before, behind);
    }
  }
  return set_.Concat({before.language, behind});
}

bool PatternLanguage::LookBehind(const Piece& piece, Run* before) {
  const PiecePointer& inside = piece.parts[0];
  if (inside->looks_ahead) {
    Fail(piece.at, "`$` and lookahead in a lookbehind are not supported");
    return false;
  }
  if (!before->at_start && piece.reach > before->shortest) {
    Fail(piece.at,
         "a lookbehind, or a word boundary, that looks further back than to the group, loop or "
         "lookahead before it is not supported");
    return false;
  }
  const Run any = {text_.Any(), 0, true};
  const ExpressionId condition = Walk(Prepend(inside, nullptr), any, set_.Empty());
  before->language = text_.Narrow(before->language, condition, piece.negative);
  return status_.ok();
}

// Assertions at one place hold in any order. Those that look back come first, while the text before
// them is known.
const PatternLanguage::Rest* PatternLanguage::BehindFirst(const Rest* rest) {
  std::vector<PiecePointer> back, ahead;
  for (; rest != nullptr && IsAssertion(*rest->head); rest = rest->tail) {
    (LooksBack(*rest->head) ? back : ahead).push_back(rest->head);
  }
  return PrependAll(back, PrependAll(ahead, rest));
}

ExpressionId PatternLanguage::WalkAhead(const Rest* rest, const Run& before, ExpressionId behind) {
  const Rest* next = rest->tail;
  while (next != nullptr && IsAssertion(*next->head) && !LooksBack(*next->head)) next = next->tail;
  if (next != nullptr && LooksBack(*next->head)) return Walk(BehindFirst(rest), before, behind);
  if (rest->reach == 0 || !before.at_start) {
    return set_.Concat({before.language, WalkAheadFrom(rest, NoText(false), behind)});
  }
  // At the beginning of the text, and behind it.
  std::vector<ExpressionId> ways;
  if (set_.IsNullable(before.language)) ways.push_back(WalkAheadFrom(rest, NoText(true), behind));
  const ExpressionId some = set_.Difference(before.language, set_.Empty());
  if (before.language != set_.Empty()) {
    ways.push_back(set_.Concat({some, WalkAheadFrom(rest, NoText(false), behind)}));
  }
  return set_.Or(ways);
}

ExpressionId PatternLanguage::WalkAheadFrom(const Rest* rest, const Run& before,
                                            ExpressionId behind) {
  const Piece& piece = *rest->head;
  const ExpressionId language = Walk(rest->tail, before, behind);
  if (language == set_.Nothing()) return language;
  if (piece.kind == PieceKind::kEnd) {
    return set_.IsNullable(language) ? set_.Empty() : Impossible(piece);
  }
  const ExpressionId condition = Walk(Prepend(piece.parts[0], nullptr), before, text_.Any());
  return text_.Narrow(language, condition, piece.negative);
}

ExpressionId PatternLanguage::WalkAlternatives(const Rest* rest, const Run& before,
                                               ExpressionId behind) {
  const Piece& piece = *rest->head;
  const Rest* tail = rest->tail;
  std::vector<ExpressionId> ways;
  if (ReachOf(tail) > 0) {
    // What follows looks back into the alternatives: it is made for each.
    for (const PiecePointer& part : piece.parts) {
      ways.push_back(Walk(Prepend(part, tail), before, behind));
    }
    return set_.Or(ways);
  }
  if (tail != nullptr) behind = Walk(tail, NoText(false), behind);
  if (behind == set_.Nothing()) return behind;
  const bool looks_back = piece.reach > 0;
  const Run from = looks_back ? before : NoText(false);
  for (const PiecePointer& part : piece.parts) {
    ways.push_back(Walk(Prepend(part, nullptr), from, behind));
  }
  const ExpressionId any = set_.Or(ways);
  return looks_back ? any : set_.Concat({before.language, any});
}

ExpressionId PatternLanguage::WalkRepeat(const Rest* rest, const Run& before, ExpressionId behind) {
  const Piece& piece = *rest->head;
  const PiecePointer& operand = piece.parts[0];
  if (piece.max == 0) return Walk(rest->tail, before, behind);
  if (!operand->looks_ahead) return WalkRepeatInContext(rest, before, behind);
  if (piece.min == 0 && piece.max == Piece::kUnbounded) return WalkLoop(rest, before, behind);
  // Once, and the others behind it.
  const uint32_t min = piece.min == 0 ? 0 : piece.min - 1;
  const uint32_t max = piece.max == Piece::kUnbounded ? Piece::kUnbounded : piece.max - 1;
  std::vector<PiecePointer> parts{operand};
  if (max > 0) parts.push_back(RepeatPiece(operand, min, max, piece.at));
  if (piece.min > 0) return Walk(PrependAll(parts, rest->tail), before, behind);
  const PiecePointer either =
      AlternativesPiece({PlainPiece(set_.Empty(), 0, 0), SequencePiece(std::move(parts))});
  return Walk(Prepend(either, rest->tail), before, behind);
}

// A group that looks back alone: once with the text before it, and later ones behind that. A group
// that matches no text changes nothing, so the others are not at the beginning of the text.
ExpressionId PatternLanguage::WalkRepeatInContext(const Rest* rest, const Run& before,
                                                  ExpressionId behind) {
  const Piece& piece = *rest->head;
  const PiecePointer& operand = piece.parts[0];
  std::vector<PiecePointer> parts{operand};
  if (piece.max > 1) {
    uint32_t min = piece.min == 0 ? 0 : piece.min - 1;
    const uint32_t max = piece.max == Piece::kUnbounded ? Piece::kUnbounded : piece.max - 1;
    const ExpressionId later = Walk(Prepend(operand, nullptr), NoText(false), set_.Empty());
    if (min > 0 && before.at_start && set_.IsNullable(before.language)) {
      const ExpressionId first = Walk(Prepend(operand, nullptr), NoText(true), set_.Empty());
      if (set_.IsNullable(first)) min = 0;
    }
    if (!status_.ok()) return set_.Nothing();
    parts.push_back(PlainPiece(set_.Repeat(later, min, max),
                               MultiplyLengths(operand->shortest, min),
                               MultiplyLengths(operand->longest, max)));
  }
  const ExpressionId some = Walk(PrependAll(parts, rest->tail), before, behind);
  if (piece.min > 0) return some;
  return set_.Or({some, Walk(rest->tail, before, behind)});
}

ExpressionId PatternLanguage::Conditions(const std::vector<PiecePointer>& parts, size_t* at) {
  ExpressionId condition = text_.Any();
  for (; *at < parts.size() && parts[*at]->kind == PieceKind::kAhead; ++*at) {
    const Piece& look = *parts[*at];
    const ExpressionId ahead = Walk(Prepend(look.parts[0], nullptr), NoText(false), text_.Any());
    condition = text_.Narrow(condition, ahead, look.negative);
  }
  return condition;
}

// The ways through the group of `loop`: alternatives inside it are distributed. False if a way is
// not of the form lookaheads, text, lookaheads, or if there are too many.
bool PatternLanguage::FindWays(const Piece& loop, std::vector<LoopWay>* ways) {
  std::vector<std::vector<PiecePointer>> open{{loop.parts[0]}};
  while (!open.empty()) {
    std::vector<PiecePointer> parts = std::move(open.back());
    open.pop_back();
    const auto inner = std::find_if(parts.begin(), parts.end(), [](const PiecePointer& part) {
      return part->kind == PieceKind::kSequence || part->kind == PieceKind::kAlternatives;
    });
    if (inner != parts.end()) {
      const PiecePointer group = *inner;
      const auto place = static_cast<size_t>(inner - parts.begin());
      const bool sequence = group->kind == PieceKind::kSequence;
      for (size_t i = 0; i < (sequence ? 1 : group->parts.size()); ++i) {
        std::vector<PiecePointer> way(parts.begin(), parts.begin() + static_cast<long>(place));
        const auto first = group->parts.begin() + static_cast<long>(i);
        way.insert(way.end(), first, sequence ? group->parts.end() : first + 1);
        way.insert(way.end(), parts.begin() + static_cast<long>(place) + 1, parts.end());
        open.push_back(std::move(way));
      }
      steps_ += static_cast<int>(parts.size());
      if (open.size() + ways->size() > kWaysMax || steps_ > kStepsMax) return false;
      continue;
    }
    text_.Tidy(&parts);
    LoopWay way{};
    size_t at = 0;
    way.condition = Conditions(parts, &at);
    if (at == parts.size()) continue;  // no text: changes nothing
    if (parts[at]->kind != PieceKind::kPlain) return false;
    if (parts[at]->shortest == 0) return false;
    way.body = parts[at++]->language;
    way.after = Conditions(parts, &at);
    if (at != parts.size()) return false;
    ways->push_back(way);
  }
  return true;
}

ExpressionId PatternLanguage::WalkLoop(const Rest* rest, const Run& before, ExpressionId behind) {
  const Piece& piece = *rest->head;
  if (rest->reach > 0) {
    return Fail(piece.at,
                "a lookbehind, or `^`, in or behind a repeated group with lookahead "
                "inside is not supported");
  }
  const ExpressionId end = Walk(rest->tail, NoText(false), behind);
  if (end == text_.Any()) return set_.Concat({before.language, end});
  std::vector<LoopWay> ways;
  if (!FindWays(piece, &ways)) {
    return Fail(piece.at,
                "a repeated group with lookahead or `$` inside is not supported, except "
                "with lookahead at its beginning or end alone");
  }
  if (!status_.ok()) return set_.Nothing();
  const Result<ExpressionId> language = LoopLanguage(set_, ways, end);
  if (!language.ok()) return Fail(piece.at, language.status().message());
  return set_.Concat({before.language, *language});
}

}  // namespace minisgl::grammar
