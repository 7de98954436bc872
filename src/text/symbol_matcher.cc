// The byte trie of SymbolMatcher. Nodes are numbers; edges are keyed by (node, byte).
#include "text/symbol_matcher.h"

#include "minisgl/base/check.h"

namespace minisgl::text {

void SymbolMatcher::Add(std::string_view spelling, TokenId id) {
  MINISGL_CHECK(!spelling.empty() && spelling.size() <= kSymbolBytesMax, "a spelling of {} bytes",
                spelling.size());
  begins_[static_cast<uint8_t>(spelling[0])] = true;
  uint32_t node = 0;
  for (char byte : spelling) {
    const auto [edge, is_new] =
        edges_.try_emplace(Edge(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = edge->second;
  }
  ids_[node] = id;
}

std::optional<SymbolMatcher::Match> SymbolMatcher::LongestPrefix(std::string_view text) const {
  if (text.empty() || !begins_[static_cast<uint8_t>(text[0])]) return std::nullopt;
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ids_[node] >= 0) longest = Match{i + 1, ids_[node]};
  }
  return longest;
}

}  // namespace minisgl::text
