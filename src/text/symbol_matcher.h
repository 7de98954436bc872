// Finds the longest of a set of spellings that begins at a place of a text.
//
// A byte trie in one hash table; built once, then immutable and usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl::text {

// Longer spellings are matched nowhere (real ones have 40 bytes): each place of a text costs as
// many steps as a spelling has bytes.
inline constexpr size_t kSymbolBytesMax = 128;

class SymbolMatcher {
 public:
  struct Match {
    size_t length = 0;
    TokenId id = 0;
  };

  // A later Add of the same spelling replaces the id. REQUIRES 1 to kSymbolBytesMax bytes.
  void Add(std::string_view spelling, TokenId id);

  // The longest spelling that `text` begins with.
  std::optional<Match> LongestPrefix(std::string_view text) const;

 private:
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }

  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<TokenId> ids_ = {-1};  // by node; -1: no spelling ends there. Node 0 is the root
  bool begins_[256] = {};            // bytes that some spelling begins with
};

}  // namespace minisgl::text
