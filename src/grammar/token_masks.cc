// Masks: tries of the vocabulary walked along a machine's states.
//
// Tokens that are characters of a JSON string and nothing else stand in tries of their own, by
// their number of characters. Where a string of that many may follow, a trie's ready mask is taken
// whole.
#include "minisgl/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "grammar/machine.h"
#include "grammar/string_characters.h"
#include "grammar/token_trie.h"
#include "minisgl/base/check.h"

namespace minisgl {

using grammar::Machine;
using grammar::TokenTrie;
using grammar::TrieNode;

namespace grammar {

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
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(node);
    }
    TrieNode& end = nodes_[path.back()];
    if (end.num_tokens++ == 0) end.tokens = static_cast<uint32_t>(token_ids_.size());
    token_ids_.push_back(id);
    depth_max_ = std::max(depth_max_, bytes.size());
    last = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

}  // namespace grammar

namespace {

constexpr size_t kTokenBytesMax = 65'535;

void SetBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
}

void WalkTrie(const TokenTrie& trie, Machine* machine, uint32_t state, std::span<uint32_t> mask) {
  const std::span<const TrieNode> nodes = trie.nodes();
  std::vector<uint32_t> states(trie.depth_max() + 1);
  states[0] = state;
  for (uint32_t i = 0; i < nodes.size();) {
    const TrieNode& node = nodes[i];
    const uint32_t next = machine->Step(states[node.depth - 1U], node.byte);
    if (next == Machine::kDeadState) {
      i = node.end;
      continue;
    }
    states[node.depth] = next;
    for (uint32_t j = 0; j < node.num_tokens; ++j) SetBit(mask, trie.token_ids()[node.tokens + j]);
    ++i;
  }
}

}  // namespace

struct TokenMasks::Impl {
  struct Slice {
    uint32_t length;  // characters of its longest tokens
    TokenTrie trie;
    std::vector<uint32_t> mask;
  };

  size_t num_tokens = 0;
  uint64_t id = 0;  // for the machines' caches
  std::vector<TokenId> end_tokens;
  std::vector<Slice> slices;
  std::optional<TokenTrie> rest;
};

TokenMasks::TokenMasks(std::span<const std::string> bytes, std::span<const TokenId> end_tokens)
    : impl_(std::make_unique<Impl>()) {
  static std::atomic<uint64_t> next_id{1};
  impl_->id = next_id++;
  impl_->num_tokens = bytes.size();
  for (const TokenId id : end_tokens) {
    if (id >= 0 && static_cast<size_t>(id) < bytes.size()) impl_->end_tokens.push_back(id);
  }
  // Lengths of slices: most tokens are short, and bounded strings allow those until near their end.
  constexpr std::array<uint32_t, 3> kLengths = {10, 30, grammar::kAnyLength};
  std::array<std::vector<std::pair<std::string_view, TokenId>>, 4> tokens;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (bytes[i].empty() || bytes[i].size() > kTokenBytesMax) continue;
    if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end()) continue;
    const size_t characters = grammar::CountStringCharacters(bytes[i]);
    size_t slice = 3;
    if (characters > 0) slice = characters <= kLengths[0] ? 0 : characters <= kLengths[1] ? 1 : 2;
    tokens[slice].emplace_back(bytes[i], id);
  }
  for (size_t slice = 0; slice < 3; ++slice) {
    if (tokens[slice].empty()) continue;
    std::vector<uint32_t> mask(num_words());
    for (const auto& [text, id] : tokens[slice]) SetBit(mask, id);
    impl_->slices.push_back(
        {kLengths[slice], TokenTrie(std::move(tokens[slice])), std::move(mask)});
  }
  impl_->rest.emplace(std::move(tokens[3]));
}

TokenMasks::~TokenMasks() = default;

size_t TokenMasks::num_tokens() const { return impl_->num_tokens; }

bool TokenMasks::Fill(const Matcher& matcher, std::span<uint32_t> mask) const {
  MINISGL_CHECK(mask.size() >= num_words(), "a mask of {} words for {} tokens", mask.size(),
                num_tokens());
  Machine& machine = matcher.grammar().machine();
  const std::lock_guard lock(machine.mutex);
  machine.Trim();
  const uint32_t state = matcher.states_.back();
  std::fill(mask.begin(), mask.end(), 0);
  if (const std::vector<uint32_t>* known = machine.FindMask(impl_->id, state)) {
    std::copy(known->begin(), known->end(), mask.begin());
  } else {
    const std::span<uint32_t> own = mask.first(num_words());
    for (const Impl::Slice& slice : impl_->slices) {
      if (machine.AllowsStrings(state, slice.length)) {
        for (size_t i = 0; i < own.size(); ++i) own[i] |= slice.mask[i];
      } else {
        WalkTrie(slice.trie, &machine, state, own);
      }
    }
    WalkTrie(*impl_->rest, &machine, state, own);
    if (machine.IsAccepting(state)) {
      for (const TokenId id : impl_->end_tokens) SetBit(own, id);
    }
    machine.KeepMask(impl_->id, state, own);
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace minisgl
