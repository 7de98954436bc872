// Places in repetitions whose counts are too large to matter.
//
// After each character of a string of at most 1,000 the rest is another expression, and the machine
// in another state. But no token has that many characters: what may follow is the same as in a
// string of just more than the longest token. So all those places have one mask.
#include <algorithm>

#include "grammar/machine.h"

namespace minisgl::grammar {

// r{a,b} t, where r takes at least one byte, goes on with the same texts of n bytes as r{a',b'} t,
// where a' and b' are a and b but n at most: such a text gets through n repetitions at most.
uint32_t Machine::ShortenLexer(uint32_t lexer, uint32_t repetitions_max) {
  const uint64_t key = uint64_t{repetitions_max} << 32 | lexer;
  if (const uint32_t* known = shortened_.Find(key)) return *known;
  bool is_shorter = false;
  std::vector<LexerPair> pairs(
      pairs_.begin() + lexers_[lexer].first_pair,
      pairs_.begin() + lexers_[lexer].first_pair + lexers_[lexer].num_pairs);
  for (LexerPair& pair : pairs) {
    ExpressionTable::RepeatHead head{};
    if (!expressions_->SplitRepeat(pair.rest, &head)) continue;
    if (expressions_->nodes[head.operand].nullable) continue;
    const uint32_t min = std::min(head.min, repetitions_max);
    const bool is_endless = head.max == ExpressionTable::kUnbounded;
    const uint32_t max = is_endless ? head.max : std::min(head.max, repetitions_max);
    if (min == head.min && max == head.max) continue;
    pair.rest = expressions_->Concat(expressions_->Repeat(head.operand, min, max), head.tail);
    is_shorter = true;
  }
  // Past a limit there is no shorter one.
  is_shorter = is_shorter && expressions_->status.ok();
  ForgetLimit();
  const uint32_t result = is_shorter ? InternLexer(pairs) : lexer;
  shortened_.Insert(key, result);
  return result;
}

uint32_t Machine::ShortenCounts(uint32_t state, size_t bytes_max) {
  const auto repetitions_max = static_cast<uint32_t>(bytes_max);
  bool is_shorter = false;
  std::vector<Lane> lanes;
  for (uint32_t i = 0; i < states_[state].num_lanes; ++i) {
    const Lane lane = lanes_[states_[state].first_lane + i];
    lanes.push_back({lane.node, ShortenLexer(lane.lexer, repetitions_max)});
    is_shorter = is_shorter || lanes.back().lexer != lane.lexer;
  }
  return is_shorter ? InternState(&lanes, states_[state].accepting) : state;
}

}  // namespace minisgl::grammar
