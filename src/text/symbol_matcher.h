// Longest-prefix search for a set of spellings.
//
// A byte trie stored in one hash table. Immutable after building; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl::text {

// Longer spellings are not supported (real ones have 40 bytes): the search at each place of a text
// takes up to one step per byte of a spelling.
inline constexpr size_t kSymbolBytesMax = 128;

class SymbolMatcher {
 public:
  struct Match {
    size_t length = 0;
    TokenId id = 0;
  };

  // Adding a spelling again replaces its id. REQUIRES: 1 to kSymbolBytesMax bytes.
  void Add(std::string_view spelling, TokenId id);

  // Returns the longest spelling that is a prefix of `text`.
  std::optional<Match> LongestPrefix(std::string_view text) const;

 private:
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }

  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<TokenId> ids_ = {-1};  // by node; -1 if no spelling ends there. Node 0 is the root
  bool begins_[256] = {};            // bytes that some spelling begins with
};

}  // namespace minisgl::text
