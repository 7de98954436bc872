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
  // Tokens of string characters: those of 1, 2, ... characters, and of more than kStringLengthMax.
  struct Strings {
    TokenTrie trie;
    std::vector<uint32_t> mask;  // of these and all shorter ones
  };

  void FillOwn(Machine* machine, uint32_t state, std::span<uint32_t> mask) const;

  size_t num_tokens = 0;
  uint64_t id = 0;  // for the machines' caches
  std::vector<TokenId> end_tokens;
  std::vector<Strings> strings;          // by number of characters, from 1
  std::optional<TokenTrie> all_strings;  // the same tokens in one trie
  std::optional<TokenTrie> others;
};

TokenMasks::TokenMasks(std::span<const std::string> bytes, std::span<const TokenId> end_tokens)
    : impl_(std::make_unique<Impl>()) {
  static std::atomic<uint64_t> next_id{1};
  impl_->id = next_id++;
  impl_->num_tokens = bytes.size();
  for (const TokenId id : end_tokens) {
    if (id >= 0 && static_cast<size_t>(id) < bytes.size()) impl_->end_tokens.push_back(id);
  }
  using Tokens = std::vector<std::pair<std::string_view, TokenId>>;
  std::array<Tokens, grammar::kStringLengthMax + 1> by_length;
  Tokens all_strings, others;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (bytes[i].empty() || bytes[i].size() > kTokenBytesMax) continue;
    if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end()) continue;
    const size_t characters = grammar::CountStringCharacters(bytes[i]);
    if (characters == 0) {
      others.emplace_back(bytes[i], id);
      continue;
    }
    all_strings.emplace_back(bytes[i], id);
    by_length[std::min<size_t>(characters, by_length.size()) - 1].emplace_back(bytes[i], id);
  }
  std::vector<uint32_t> mask(num_words());
  for (Tokens& tokens : by_length) {
    for (const auto& [text, id] : tokens) SetBit(mask, id);
    impl_->strings.push_back({TokenTrie(std::move(tokens)), mask});
  }
  impl_->all_strings.emplace(std::move(all_strings));
  impl_->others.emplace(std::move(others));
}

void TokenMasks::Impl::FillOwn(Machine* machine, uint32_t state, std::span<uint32_t> mask) const {
  const grammar::StringLengths lengths = machine->StringsAt(state);
  if (lengths.all == 0 && lengths.some == grammar::kAnyLength) {
    WalkTrie(*all_strings, machine, state, mask);
  } else {
    const size_t known = lengths.all == grammar::kAnyLength
                             ? strings.size()
                             : std::min<size_t>(lengths.all, grammar::kStringLengthMax);
    if (known > 0) {
      const std::vector<uint32_t>& ready = strings[known - 1].mask;
      std::copy(ready.begin(), ready.end(), mask.begin());
    }
    for (size_t i = known; i < strings.size() && i < lengths.some; ++i) {
      WalkTrie(strings[i].trie, machine, state, mask);
    }
  }
  WalkTrie(*others, machine, state, mask);
  if (machine->IsAccepting(state)) {
    for (const TokenId end : end_tokens) SetBit(mask, end);
  }
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
    impl_->FillOwn(&machine, state, own);
    machine.KeepMask(impl_->id, state, own);
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace minisgl
