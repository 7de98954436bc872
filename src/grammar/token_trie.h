// A vocabulary as tries in depth-first order.
//
// The nodes of a trie stand in one array; a node's subtree follows it. A walk goes on at the next
// node if a byte is accepted, and behind the subtree if it is not: a loop without recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl::grammar {

struct TrieNode {
  uint32_t end = 0;    // one past the subtree
  uint16_t depth = 0;  // of this node's byte: 1 at the top
  uint8_t byte = 0;
  uint32_t tokens = 0;  // first of the tokens that end here, in token_ids
  uint32_t num_tokens = 0;
};

class TokenTrie {
 public:
  // Tokens with equal bytes share a node. REQUIRES that no token is empty or longer than 65,535
  // bytes.
  explicit TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens);

  std::span<const TrieNode> nodes() const { return nodes_; }
  const std::vector<TokenId>& token_ids() const { return token_ids_; }
  size_t depth_max() const { return depth_max_; }

 private:
  std::vector<TrieNode> nodes_;
  std::vector<TokenId> token_ids_;
  size_t depth_max_ = 0;
};

}  // namespace minisgl::grammar
