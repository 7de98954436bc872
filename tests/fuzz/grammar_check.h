// Checks of every grammar: it is refused with one readable line, or matchers, masks and trimmed
// tables agree along a walk that the input chooses.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/matcher.h"
#include "minisgl/grammar/token_masks.h"

namespace minisgl {

// Returns the `choice`-th byte of `bytes`. REQUIRES that `bytes` is not empty.
inline char ChosenByte(const ByteSet& bytes, uint32_t choice) {
  choice %= static_cast<uint32_t>(bytes.size());
  for (int byte = 0;; ++byte) {
    if (bytes.Contains(static_cast<uint8_t>(byte)) && choice-- == 0) {
      return static_cast<char>(byte);
    }
  }
}

inline void CheckGrammar(const GrammarText& text, std::string_view input) {
  GrammarLimits limits;
  limits.expressions.nodes_max = 100'000;
  limits.expressions.operands_max = 400'000;
  limits.emptiness_work_max = 5'000;
  limits.state_items_max = 500;
  const auto grammar = CompileGrammar(text, limits);
  if (!grammar.ok()) {
    const std::string& message = grammar.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return;
  }
  limits.table_bytes_max = 1;
  const auto trimmed = CompileGrammar(text, limits);
  MINISGL_CHECK(trimmed.ok(), "compiled once only");
  const std::vector<std::string> tokens = {"a", "b", "ab", "\"",   "[", "]",
                                           " ", "1", "12", "\xC3", ""};
  const TokenMasks masks(tokens, std::array<TokenId, 1>{10});
  Matcher matcher(*grammar), other(*trimmed);
  std::vector<uint32_t> mask(masks.num_words());
  for (size_t step = 0; step < 24; ++step) {
    const ByteSet next = matcher.NextBytes();
    MINISGL_CHECK(next == other.NextBytes() && matcher.IsAccepting() == other.IsAccepting(),
                  "trimmed tables change the texts");
    masks.Fill(matcher, mask);
    for (size_t id = 0; id < tokens.size(); ++id) {
      Matcher copy = matcher;
      const bool expected = id == 10 ? matcher.IsAccepting() : copy.Accept(tokens[id]);
      MINISGL_CHECK((mask[0] >> id & 1) == (expected ? 1 : 0), "the mask of token {} differs", id);
    }
    const std::string forced = matcher.ForcedBytes(4);
    Matcher copy = matcher;
    MINISGL_CHECK(copy.Accept(forced), "what must follow may not");
    if (next.empty()) break;
    const uint32_t choice = step < input.size() ? static_cast<uint8_t>(input[step]) : 7;
    const std::string byte(1, ChosenByte(next, choice));
    MINISGL_CHECK(matcher.Accept(byte) && other.Accept(byte), "an allowed byte is refused");
  }
  bool accepted = false, again = false;
  MINISGL_CHECK(MatchText(**grammar, input, &accepted) == MatchText(**trimmed, input, &again) &&
                    accepted == again,
                "trimmed tables change the match");
}

}  // namespace minisgl
