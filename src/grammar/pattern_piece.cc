#include "grammar/pattern_piece.h"

#include <algorithm>
#include <utility>

namespace minisgl::grammar {

namespace {

std::shared_ptr<Piece> NewPiece(PieceKind kind, size_t at) {
  auto piece = std::make_shared<Piece>();
  piece->kind = kind;
  piece->at = at;
  return piece;
}

// Joins plain pieces that stand one after the other.
void JoinPlain(ExpressionSet& set, std::vector<PiecePointer>* parts) {
  std::vector<PiecePointer> joined;
  for (size_t i = 0; i < parts->size();) {
    std::vector<ExpressionId> languages;
    uint32_t shortest = 0, longest = 0;
    const size_t first = i;
    for (; i < parts->size() && (*parts)[i]->kind == PieceKind::kPlain; ++i) {
      languages.push_back((*parts)[i]->language);
      shortest = AddLengths(shortest, (*parts)[i]->shortest);
      longest = AddLengths(longest, (*parts)[i]->longest);
    }
    if (languages.empty()) {
      joined.push_back((*parts)[i++]);
    } else {
      joined.push_back(i - first == 1 ? (*parts)[first]
                                      : PlainPiece(set.Concat(languages), shortest, longest));
    }
  }
  *parts = std::move(joined);
}

// A piece whose inside is plain and is decided by `beside` alone.
bool IsDecidedBy(const Piece& look, PieceKind kind, const Piece& beside) {
  return look.kind == kind && look.parts[0]->kind == PieceKind::kPlain &&
         beside.kind == PieceKind::kPlain && beside.shortest >= look.parts[0]->longest;
}

// Lookbehind into the plain text before it.
void NarrowBehind(PatternText* text, std::vector<PiecePointer>* parts) {
  ExpressionSet& set = text->set();
  std::vector<PiecePointer> kept;
  for (PiecePointer& part : *parts) {
    if (kept.empty() || !IsDecidedBy(*part, PieceKind::kBehind, *kept.back())) {
      kept.push_back(std::move(part));
      continue;
    }
    const Piece& before = *kept.back();
    const ExpressionId ends = set.Concat({text->Any(), part->parts[0]->language});
    kept.back() = PlainPiece(text->Narrow(before.language, ends, part->negative), before.shortest,
                             before.longest);
  }
  JoinPlain(set, &kept);
  *parts = std::move(kept);
}

// Lookahead into the plain text behind it.
void NarrowAhead(PatternText* text, std::vector<PiecePointer>* parts) {
  ExpressionSet& set = text->set();
  std::vector<PiecePointer> kept;  // from the last one on
  for (size_t i = parts->size(); i-- > 0;) {
    const PiecePointer& part = (*parts)[i];
    if (kept.empty() || !IsDecidedBy(*part, PieceKind::kAhead, *kept.back())) {
      kept.push_back(part);
      continue;
    }
    const Piece& behind = *kept.back();
    const ExpressionId begins = set.Concat({part->parts[0]->language, text->Any()});
    kept.back() = PlainPiece(text->Narrow(behind.language, begins, part->negative), behind.shortest,
                             behind.longest);
  }
  std::reverse(kept.begin(), kept.end());
  JoinPlain(set, &kept);
  *parts = std::move(kept);
}

}  // namespace

uint32_t AddLengths(uint32_t a, uint32_t b) {
  return a >= Piece::kUnbounded - b ? Piece::kUnbounded : a + b;
}

uint32_t MultiplyLengths(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, Piece::kUnbounded));
}

uint32_t ReachBefore(uint32_t reach, uint32_t shortest) {
  if (reach == Piece::kUnbounded) return reach;
  return reach > shortest ? reach - shortest : 0;
}

PiecePointer PlainPiece(ExpressionId language, uint32_t shortest, uint32_t longest) {
  auto piece = NewPiece(PieceKind::kPlain, 0);
  piece->language = language;
  piece->shortest = shortest;
  piece->longest = longest;
  return piece;
}

PiecePointer AnchorPiece(PieceKind kind, size_t at) {
  auto piece = NewPiece(kind, at);
  piece->looks_ahead = kind == PieceKind::kEnd;
  piece->reach = kind == PieceKind::kBegin ? 1 : 0;
  return piece;
}

PiecePointer LookPiece(PieceKind kind, bool negative, PiecePointer inside, size_t at) {
  auto piece = NewPiece(kind, at);
  piece->negative = negative;
  piece->looks_ahead = kind == PieceKind::kAhead;
  // Behind: one more if `^` inside must see that nothing stands before the text that it looks at.
  piece->reach = kind == PieceKind::kAhead ? inside->reach
                                           : AddLengths(inside->longest, inside->reach > 0 ? 1 : 0);
  piece->parts.push_back(std::move(inside));
  return piece;
}

PiecePointer SequencePiece(std::vector<PiecePointer> parts) {
  if (parts.size() == 1) return parts[0];
  auto piece = NewPiece(PieceKind::kSequence, parts.empty() ? 0 : parts[0]->at);
  for (const PiecePointer& part : parts) {
    piece->reach = std::max(piece->reach, ReachBefore(part->reach, piece->shortest));
    piece->shortest = AddLengths(piece->shortest, part->shortest);
    piece->longest = AddLengths(piece->longest, part->longest);
    piece->looks_ahead = piece->looks_ahead || part->looks_ahead;
  }
  piece->parts = std::move(parts);
  return piece;
}

PiecePointer AlternativesPiece(std::vector<PiecePointer> parts) {
  if (parts.size() == 1) return parts[0];
  auto piece = NewPiece(PieceKind::kAlternatives, parts[0]->at);
  piece->shortest = Piece::kUnbounded;
  for (const PiecePointer& part : parts) {
    piece->reach = std::max(piece->reach, part->reach);
    piece->shortest = std::min(piece->shortest, part->shortest);
    piece->longest = std::max(piece->longest, part->longest);
    piece->looks_ahead = piece->looks_ahead || part->looks_ahead;
  }
  piece->parts = std::move(parts);
  return piece;
}

PiecePointer RepeatPiece(PiecePointer operand, uint32_t min, uint32_t max, size_t at) {
  auto piece = NewPiece(PieceKind::kRepeat, at);
  piece->min = min;
  piece->max = max;
  piece->shortest = MultiplyLengths(operand->shortest, min);
  piece->longest = MultiplyLengths(operand->longest, max);
  piece->reach = operand->reach;
  piece->looks_ahead = operand->looks_ahead;
  piece->parts.push_back(std::move(operand));
  return piece;
}

ExpressionId PatternText::Spell(const CodePointSet& points) const {
  if (points.empty()) return set_.Nothing();
  return spell_ ? spell_(points) : set_.CodePoints(points);
}

ExpressionId PatternText::Any() {
  if (!any_) any_ = set_.Repeat(Spell(CodePointSet::All()), 0, Piece::kUnbounded);
  return *any_;
}

ExpressionId PatternText::Narrow(ExpressionId language, ExpressionId condition,
                                 bool negative) const {
  return negative ? set_.Difference(language, condition) : set_.And({language, condition});
}

void PatternText::Tidy(std::vector<PiecePointer>* parts) {
  JoinPlain(set_, parts);
  if (parts->size() < 2) return;
  NarrowBehind(this, parts);
  NarrowAhead(this, parts);
}

}  // namespace minisgl::grammar
