// A vocabulary as tries in depth-first order.
//
// The nodes of a trie stand in one array; a node's subtree follows it. A walk goes on at the next
// node if a byte is accepted, and behind the subtree if it is not: a loop without recursion. The
// children of a node that has many stand in a list besides, so that a walk which few of them
// accept does not read each: they are far from each other in memory.
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

// Groups of bytes, one bit each. Bytes of whole UTF-8 characters, of which the last may be cut, are
// in the groups of ASCII, in kLeadE2 (U+2000 to U+2FFF: line separators, which `.` does not match,
// are there) and in kNonAscii; all others are in kNoGroup.
inline constexpr uint32_t kNoGroup = 1;
inline constexpr uint32_t kNonAscii = 2;
inline constexpr uint32_t kLeadE2 = 4;
// The group of a byte below 0x80: a kind of letters, digits, or a group of its own; kNoGroup for
// controls and characters that JSON escapes.
uint32_t AsciiGroup(uint8_t byte);

// A summary of the nodes below a node.
struct TrieBelow {
  uint32_t groups = 0;  // kNoGroup if the node itself ends within a character
  uint16_t height = 0;
  bool is_string = false;  // of the node itself: the bytes to here are whole characters of a string
};

struct TrieNode {
  uint32_t end = 0;     // one past the subtree
  uint32_t tokens = 0;  // first of the tokens that end here, in token_ids; the last one is before
                        // the next node's first
  uint32_t sibling = UINT32_MAX;  // index in siblings() of the next one; none in a short list
  uint16_t depth = 0;             // of this node's byte: 1 at the top
  uint8_t byte = 0;
};

// The last entry of a list is no child: its node is the one after the parent's subtree.
struct TrieSibling {
  uint32_t node = 0;
  uint8_t byte = 0;
  bool is_last = false;
};

class TokenTrie {
 public:
  // Tokens with equal bytes share a node. REQUIRES that no token is empty or longer than 65,535
  // bytes.
  explicit TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens);

  // The last entry is no node: its `tokens` is the end of the tokens of all others.
  std::span<const TrieNode> nodes() const { return nodes_; }
  size_t num_nodes() const { return nodes_.size() - 1; }
  const std::vector<TrieSibling>& siblings() const { return siblings_; }
  const std::vector<TokenId>& token_ids() const { return token_ids_; }
  // The tokens that end at nodes [first, end).
  std::span<const TokenId> token_ids_of(uint32_t first, uint32_t end) const {
    return std::span(token_ids_)
        .subspan(nodes_[first].tokens, nodes_[end].tokens - nodes_[first].tokens);
  }
  const std::vector<TrieBelow>& below() const { return below_; }  // by node
  size_t depth_max() const { return depth_max_; }

 private:
  void ListSiblings();
  void FindBelow();
  std::vector<TrieNode> nodes_;
  std::vector<TrieSibling> siblings_;
  std::vector<TrieBelow> below_;
  std::vector<TokenId> token_ids_;
  size_t depth_max_ = 0;
};

}  // namespace minisgl::grammar
