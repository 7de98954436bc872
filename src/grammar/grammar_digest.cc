#include "minisgl/grammar/grammar_digest.h"

#include <fmt/core.h>

namespace minisgl {

// The size stands before each part, so that no two lists of parts have the same bytes.
Sha256::Digest DigestOf(const GrammarText& grammar) {
  Sha256 hasher;
  hasher.Add(fmt::format("{} {} ", static_cast<int>(grammar.kind), grammar.text.size()));
  hasher.Add(grammar.text);
  for (const std::string& choice : grammar.choices) {
    hasher.Add(fmt::format("{} ", choice.size()));
    hasher.Add(choice);
  }
  return hasher.Finish();
}

}  // namespace minisgl
