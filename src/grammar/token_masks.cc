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
constexpr uint64_t kNodesPerWork = 32;  // nodes of a trie passed that count as one unit of work

void SetBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
}

}  // namespace

struct TokenMasks::Impl {
  // Tokens of string characters: those of 1, 2, ... characters, and of more than kStringLengthMax.
  struct Strings {
    TokenTrie trie;
    std::vector<uint32_t> mask;  // of these and all shorter ones
  };

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

TokenMasks::~TokenMasks() = default;

size_t TokenMasks::num_tokens() const { return impl_->num_tokens; }

bool TokenMasks::FillKnown(const Matcher& matcher, std::span<uint32_t> mask) const {
  MINISGL_CHECK(mask.size() >= num_words(), "a mask of {} words for {} tokens", mask.size(),
                num_tokens());
  Machine& machine = matcher.grammar().machine();
  const std::lock_guard lock(machine.mutex);
  const std::vector<uint32_t>* known = machine.FindMask(impl_->id, matcher.states_.back());
  if (known == nullptr) return false;
  std::fill(std::copy(known->begin(), known->end(), mask.begin()), mask.end(), 0);
  return true;
}

bool TokenMasks::Fill(const Matcher& matcher, std::span<uint32_t> mask) const {
  if (!FillKnown(matcher, mask)) {
    MaskWork work(this, matcher);
    int64_t work_left = INT64_MAX;
    work.GoOn(&work_left);
    std::fill(std::copy(work.mask().begin(), work.mask().end(), mask.begin()), mask.end(), 0);
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

namespace {

// While it lives, the machine's work is limited.
class WorkLimit {
 public:
  WorkLimit(Machine* machine, int64_t work_max) : machine_(*machine) {
    machine_.SetWorkMax(static_cast<uint64_t>(work_max));
  }
  ~WorkLimit() { machine_.SetNoWorkMax(); }
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

 private:
  Machine& machine_;
};

}  // namespace

// The walk along a few tries, one after the other.
struct MaskWork::Walk {
  // states[0] is the place of the mask; states[d] is after the bytes of the nodes on the way to
  // the one of depth d. A root of the machine: all are states, if only dead ones.
  std::vector<uint32_t> states;
  std::vector<const TokenTrie*> tries;
  size_t trie = 0;
  uint32_t node = 0;  // of it
  bool begun = false, ended = false;

  void NextIfPassed() {
    if (node < tries[trie]->nodes().size()) return;
    ++trie;
    node = 0;
  }
};

MaskWork::MaskWork(const TokenMasks* masks, const Matcher& matcher)
    : masks_(masks),
      grammar_(matcher.grammar_),
      mask_(masks->num_words()),
      walk_(std::make_unique<Walk>()) {
  const TokenMasks::Impl& impl = *masks->impl_;
  const size_t depth = std::max(impl.all_strings->depth_max(), impl.others->depth_max());
  walk_->states.assign(depth + 1, Machine::kDeadState);
  walk_->tries.reserve(impl.strings.size() + 1);
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  walk_->states[0] = matcher.states_.back();
  machine.AddRoot(&walk_->states);
}

MaskWork::~MaskWork() {
  if (walk_->ended) return;
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  machine.RemoveRoot(&walk_->states);
  machine.ForgetStopped();
}

bool MaskWork::GoOn(int64_t* work_left, bool yields) {
  if (walk_->ended) return true;
  Machine& machine = grammar_->machine();
  if (yields) {
    machine.mutex.LockAfterOthers();
  } else {
    machine.mutex.lock();
  }
  const std::lock_guard lock(machine.mutex, std::adopt_lock);
  machine.Trim();
  const uint64_t owner = masks_->impl_->id;
  // Another one may have made it meanwhile.
  if (const std::vector<uint32_t>* known = machine.FindMask(owner, walk_->states[0])) {
    mask_ = *known;
    End();
    return true;
  }
  if (*work_left <= 0) return false;
  const WorkLimit limit(&machine, *work_left);
  const uint64_t before = machine.work();
  const bool begun = walk_->begun || Begin();
  *work_left -= static_cast<int64_t>(machine.work() - before);
  const bool is_whole = begun && WalkOn(work_left);
  if (!is_whole) {
    machine.ReportMemory();
    return false;
  }
  if (machine.IsAccepting(walk_->states[0])) {
    for (const TokenId end : masks_->impl_->end_tokens) SetBit(mask_, end);
  }
  machine.KeepMask(owner, walk_->states[0], mask_);
  machine.ReportMemory();
  End();
  return true;
}

void MaskWork::End() {
  grammar_->machine().RemoveRoot(&walk_->states);
  walk_->ended = true;
}

// Takes ready masks where strings of many characters may follow, and finds the tries to walk.
// False if that was stopped.
bool MaskWork::Begin() {
  const TokenMasks::Impl& impl = *masks_->impl_;
  const std::optional<grammar::StringLengths> found =
      grammar_->machine().StringsAt(walk_->states[0]);
  if (!found) return false;
  const grammar::StringLengths lengths = *found;
  walk_->begun = true;
  if (lengths.all == 0 && lengths.some == grammar::kAnyLength) {
    walk_->tries.push_back(&*impl.all_strings);
  } else {
    const size_t known = lengths.all == grammar::kAnyLength
                             ? impl.strings.size()
                             : std::min<size_t>(lengths.all, grammar::kStringLengthMax);
    if (known > 0) mask_ = impl.strings[known - 1].mask;
    for (size_t i = known; i < impl.strings.size() && i < lengths.some; ++i) {
      walk_->tries.push_back(&impl.strings[i].trie);
    }
  }
  walk_->tries.push_back(&*impl.others);
  return true;
}

// True if all tries are passed.
bool MaskWork::WalkOn(int64_t* work_left) {
  Machine& machine = grammar_->machine();
  const uint64_t before = machine.work();
  const auto work_max = static_cast<uint64_t>(std::max<int64_t>(*work_left, 0));
  uint64_t num_passed = 0, work = 0;
  for (; walk_->trie < walk_->tries.size() && work < work_max; walk_->NextIfPassed()) {
    const TokenTrie& trie = *walk_->tries[walk_->trie];
    const std::span<const TrieNode> nodes = trie.nodes();
    uint32_t* const states = walk_->states.data();
    uint32_t i = walk_->node;
    for (; i < nodes.size() && work < work_max; ++num_passed) {
      const TrieNode& node = nodes[i];
      const uint32_t next = machine.Step(states[node.depth - 1U], node.byte);
      if (next == Machine::kUnknown) {
        work = work_max;
        break;
      }
      i = next == Machine::kDeadState ? node.end : i + 1;
      work = machine.work() - before + num_passed / kNodesPerWork;
      if (next == Machine::kDeadState) continue;
      states[node.depth] = next;
      for (uint32_t j = 0; j < node.num_tokens; ++j) {
        SetBit(mask_, trie.token_ids()[node.tokens + j]);
      }
    }
    walk_->node = i;
  }
  *work_left -= static_cast<int64_t>(work);
  return walk_->trie == walk_->tries.size();
}

}  // namespace minisgl
