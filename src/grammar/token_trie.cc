#include "grammar/token_trie.h"

#include <algorithm>

namespace minisgl::grammar {

namespace {

constexpr size_t kListedChildrenMin = 8;

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<uint32_t> path;  // nodes along the latest token
  std::string_view last;
  for (const auto& [bytes, id] : tokens) {
    const size_t common = static_cast<size_t>(
        std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end()).first - bytes.begin());
    while (path.size() > common) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = common; i < bytes.size(); ++i) {
      TrieNode node;
      node.byte = static_cast<uint8_t>(bytes[i]);
      node.depth = static_cast<uint16_t>(i + 1);
      node.tokens = static_cast<uint32_t>(token_ids_.size());
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(node);
    }
    token_ids_.push_back(id);
    depth_max_ = std::max(depth_max_, bytes.size());
    last = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  nodes_.back().tokens = static_cast<uint32_t>(token_ids_.size());
  ListSiblings();
  FindBelow();
}

void TokenTrie::ListSiblings() {
  const auto num_nodes = static_cast<uint32_t>(nodes_.size() - 1);
  std::vector<uint32_t> children;
  const auto list = [&](uint32_t first, uint32_t end) {
    children.clear();
    for (uint32_t child = first; child < end; child = nodes_[child].end) children.push_back(child);
    if (children.size() < kListedChildrenMin) return;
    for (size_t i = 0; i < children.size(); ++i) {
      TrieNode& child = nodes_[children[i]];
      if (i > 0) siblings_.push_back({children[i], child.byte, false});
      child.sibling = static_cast<uint32_t>(siblings_.size());
    }
    siblings_.push_back({end, 0, true});
  };
  list(0, num_nodes);
  for (uint32_t node = 0; node < num_nodes; ++node) list(node + 1, nodes_[node].end);
}

uint32_t AsciiGroup(uint8_t byte) {
  constexpr std::string_view kSingles = " -_./:,;'@+=&%?#~()*!";
  constexpr uint32_t kFirst = 3, kFirstSingle = 8;  // bits
  static_assert(kFirstSingle + kSingles.size() <= 31);
  const auto is_between = [byte](char first, char last) { return byte >= first && byte <= last; };
  if (is_between('a', 'f')) return 1U << kFirst;
  if (is_between('g', 'z')) return 2U << kFirst;
  if (is_between('A', 'F')) return 4U << kFirst;
  if (is_between('G', 'Z')) return 8U << kFirst;
  if (is_between('0', '9')) return 16U << kFirst;
  const size_t single = kSingles.find(static_cast<char>(byte));
  if (single != std::string_view::npos) return 1U << (kFirstSingle + single);
  if (byte < 0x20 || byte >= 0x7F || byte == '"' || byte == '\\') return kNoGroup;
  return 1U << 31;
}

namespace {

// The bytes that a UTF-8 character still needs.
struct CutCharacter {
  int left = 0;
  uint8_t first = 0x80, last = 0xBF;  // of the next byte
  bool is_valid = true;
  uint32_t group = kNonAscii;

  uint32_t Add(uint8_t byte) {
    if (!is_valid) return kNoGroup;
    if (left > 0) {
      is_valid = byte >= first && byte <= last;
      *this = {left - 1, 0x80, 0xBF, is_valid, group};
    } else if (byte < 0x80) {
      return AsciiGroup(byte);
    } else {
      is_valid = byte >= 0xC2 && byte <= 0xF4;
      group = byte == 0xE2 ? kLeadE2 : kNonAscii;
      left = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      first = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
      last = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    }
    return is_valid ? group : kNoGroup;
  }
};

}  // namespace

void TokenTrie::FindBelow() {
  const size_t num_nodes = nodes_.size() - 1;
  below_.resize(num_nodes);
  std::vector<uint32_t> groups(num_nodes);
  std::vector<bool> is_cut(num_nodes);
  std::vector<CutCharacter> cut(depth_max_ + 1);  // by depth, on the way to the node
  std::vector<bool> in_string(depth_max_ + 1, true);
  for (size_t i = 0; i < num_nodes; ++i) {
    CutCharacter& at = cut[nodes_[i].depth];
    at = cut[nodes_[i].depth - 1U];
    groups[i] = at.Add(nodes_[i].byte);
    is_cut[i] = at.left > 0 || !at.is_valid;
    const size_t depth = nodes_[i].depth;
    in_string[depth] = in_string[depth - 1] && (groups[i] & kNoGroup) == 0;
    below_[i].is_string = in_string[depth] && !is_cut[i];
  }
  std::vector<TrieBelow> of_depth(depth_max_ + 2);  // the nodes passed below each depth's parent
  for (size_t i = num_nodes; i-- > 0;) {
    const size_t depth = nodes_[i].depth;
    TrieBelow& children = of_depth[depth + 1];
    below_[i].groups |= children.groups;
    below_[i].height = children.height;
    children = TrieBelow();
    TrieBelow& own = of_depth[depth];
    own.groups |= groups[i] | below_[i].groups;
    own.height = std::max<uint16_t>(own.height, static_cast<uint16_t>(below_[i].height + 1));
    if (is_cut[i]) below_[i].groups |= kNoGroup;
  }
}

}  // namespace minisgl::grammar
