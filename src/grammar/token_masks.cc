// Masks: tries of the vocabulary walked along a machine's states.
//
// Tokens that are characters of a JSON string and nothing else stand in tries of their own, by
// their number of characters. Where a string of that many may follow, a trie's ready mask is taken
// whole. Other tokens are split behind the characters at their beginning: where all characters lead
// to the same place, the walk passes only the tails, `",` once for all words before it. Where all
// characters but a few do, as within the name of a member, the walk first treats all tokens alike,
// and then walks the tokens whose characters lead elsewhere.
//
// The grammars of a vocabulary share the masks that strings alone give in one terminal.
#include "minisgl/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "grammar/machine.h"
#include "grammar/string_characters.h"
#include "grammar/string_mask_cache.h"
#include "grammar/token_trie.h"
#include "minisgl/base/check.h"

namespace minisgl {

using grammar::Machine;
using grammar::TokenTrie;
using grammar::TrieNode;
using grammar::TrieSibling;

namespace {

constexpr size_t kTokenBytesMax = 65'535;
constexpr size_t kShortTokenBytesMax = 32;
constexpr uint64_t kNodesPerWork = 32;     // nodes of a trie passed that count as one unit of work
constexpr uint32_t kFreeNodesPerNode = 8;  // nodes whose tokens are taken without a look at them

// Bounds on the masks of strings that grammars share.
constexpr size_t kSharedBytesMax = size_t{16} << 20;
constexpr size_t kSpelledNodesMax = 2000;
// Where fewer bytes may come, the walk is as short as a look.
constexpr int kSharedFirstBytesMin = 16;

// Bytes that few names begin with: after one of them most likely any may follow.
constexpr std::string_view kRareBytes = "~^|`ZQ";

void SetBit(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
}

void ClearBits(std::span<uint32_t> mask, std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    mask[static_cast<size_t>(id) / 32] &= ~(1U << (static_cast<uint32_t>(id) % 32));
  }
}

}  // namespace

struct TokenMasks::Impl {
  // Tokens of string characters, by their number: 1, 2, ... characters, and of more than
  // kStringLengthMax.
  struct Strings {
    TokenTrie trie;
    std::vector<uint32_t> mask;  // of these and all shorter ones
  };

  size_t num_tokens = 0;
  size_t bytes_max = 0;  // of a token
  uint64_t id = 0;       // for the machines' caches
  std::vector<TokenId> end_tokens;
  std::vector<Strings> strings;  // by number of characters, from 1
  std::optional<TokenTrie> others;
  // Tokens of blanks alone and the rest, among the strings and among the others.
  std::optional<TokenTrie> spaces, other_strings;
  std::optional<TokenTrie> blanks, unblank_others;
  // The tails of all others: the part behind the string characters at their beginning.
  std::optional<TokenTrie> all_tails;
  // Tails of short tokens: behind 0, 1, ... characters, behind any number, and behind at least 1.
  std::vector<TokenTrie> tails;
  std::optional<TokenTrie> short_tails, later_tails;
  std::optional<TokenTrie> long_others;  // the rest, whole
  mutable grammar::StringMaskCache shared{kSharedBytesMax};
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
  Tokens spaces, other_strings, blanks, unblank_others, others, all_tails, short_tails, later_tails,
      long_others;
  std::array<Tokens, kShortTokenBytesMax> tails;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (bytes[i].empty() || bytes[i].size() > kTokenBytesMax) continue;
    if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end()) continue;
    impl_->bytes_max = std::max(impl_->bytes_max, bytes[i].size());
    std::string_view tail = bytes[i];
    const size_t characters = grammar::SkipStringCharacters(&tail);
    const bool is_blank = bytes[i].find_first_not_of(grammar::kBlanks) == std::string::npos;
    if (!tail.empty()) {
      others.emplace_back(bytes[i], id);
      (is_blank ? blanks : unblank_others).emplace_back(bytes[i], id);
      all_tails.emplace_back(tail, id);
      if (bytes[i].size() > kShortTokenBytesMax) {
        long_others.emplace_back(bytes[i], id);
        continue;
      }
      tails[characters].emplace_back(tail, id);
      short_tails.emplace_back(tail, id);
      if (characters > 0) later_tails.emplace_back(tail, id);
      continue;
    }
    (is_blank ? spaces : other_strings).emplace_back(bytes[i], id);
    by_length[std::min<size_t>(characters, by_length.size()) - 1].emplace_back(bytes[i], id);
  }
  std::vector<uint32_t> mask(num_words());
  for (Tokens& tokens : by_length) {
    for (const auto& [text, id] : tokens) SetBit(mask, id);
    impl_->strings.push_back({TokenTrie(std::move(tokens)), mask});
  }
  impl_->spaces.emplace(std::move(spaces));
  impl_->other_strings.emplace(std::move(other_strings));
  impl_->blanks.emplace(std::move(blanks));
  impl_->unblank_others.emplace(std::move(unblank_others));
  impl_->others.emplace(std::move(others));
  for (Tokens& tokens : tails) impl_->tails.emplace_back(std::move(tokens));
  impl_->long_others.emplace(std::move(long_others));
  impl_->all_tails.emplace(std::move(all_tails));
  impl_->short_tails.emplace(std::move(short_tails));
  impl_->later_tails.emplace(std::move(later_tails));
}

TokenMasks::~TokenMasks() = default;

size_t TokenMasks::num_tokens() const { return impl_->num_tokens; }

bool TokenMasks::FillKnown(const Matcher& matcher, std::span<uint32_t> mask) const {
  MINISGL_CHECK(mask.size() >= num_words(), "a mask of {} words for {} tokens", mask.size(),
                num_tokens());
  Machine& machine = matcher.grammar().machine();
  const std::lock_guard lock(machine.mutex);
  const uint32_t place = machine.ShortenCounts(matcher.states_.back(), impl_->bytes_max);
  const std::vector<uint32_t>* known = machine.FindMask(impl_->id, place);
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
  enum class Start : uint8_t {
    kHere,
    kAtOther,      // `other`, which is after some characters of a string
    kExceptOther,  // here, without the tokens behind `other`, which a part before has
  };
  struct Part {
    const TokenTrie* trie;
    size_t characters;  // of a string, before its tokens
    Start start;
  };

  // states[0] is the place of the mask; states[1] is after `characters` of a string from there;
  // states[1 + d] is after the bytes on the way to a node of depth d; the last is `other`. A root
  // of the machine, so all must be states, if only dead ones.
  std::vector<uint32_t> states;
  std::vector<Part> parts;
  size_t part = 0;
  size_t characters = 0;
  uint32_t node = 0;  // of its trie
  bool begun = false, ended = false;
  // If the first parts, `num_shared` of them, are strings within one terminal: its spelling.
  std::string spelling;
  size_t num_shared = 0;

  uint32_t& other() { return states.back(); }

  void Add(const TokenTrie& trie, size_t characters_before = 0, Start start = Start::kHere) {
    if (trie.num_nodes() > 0) parts.push_back({&trie, characters_before, start});
  }

  void NextIfPassed() {
    if (node < parts[part].trie->num_nodes()) return;
    ++part;
    node = 0;
  }

  // Goes to where the part begins. False if that was stopped.
  bool BeginPart(Machine* machine) {
    const Part& now = parts[part];
    if (now.start == Start::kAtOther || now.characters == 0) {
      states[1] = now.start == Start::kAtOther ? other() : states[0];
      return true;
    }
    for (; characters < now.characters; ++characters) {
      const uint32_t next = machine->Step(states[1], 'a');  // any character does
      if (next == Machine::kUnknown) return false;
      states[1] = next;
    }
    return true;
  }

  // Looks for a place from which any characters lead back to it, after a few bytes that may stand
  // there. False if that was stopped; `other` stays dead if there is none.
  bool FindOther(Machine* machine) {
    for (const char byte : kRareBytes) {
      const uint32_t next = machine->Step(states[0], static_cast<uint8_t>(byte));
      if (next == Machine::kUnknown) return false;
      if (next == Machine::kDeadState) continue;
      const std::optional<grammar::StringRun> run = machine->StringRunAt(next);
      if (!run || run->min != 0 || run->max != grammar::kAnyLength) continue;
      other() = next;
      break;
    }
    return true;
  }
};

MaskWork::MaskWork(const TokenMasks* masks, const Matcher& matcher)
    : masks_(masks),
      grammar_(matcher.grammar_),
      mask_(masks->num_words()),
      walk_(std::make_unique<Walk>()) {
  const TokenMasks::Impl& impl = *masks->impl_;
  const size_t depth = std::max(
      {impl.spaces->depth_max(), impl.other_strings->depth_max(), impl.others->depth_max()});
  walk_->states.assign(depth + 3, Machine::kDeadState);
  Machine& machine = grammar_->machine();
  const std::lock_guard lock(machine.mutex);
  walk_->states[0] = walk_->states[1] =
      machine.ShortenCounts(matcher.states_.back(), impl.bytes_max);
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
  Machine& machine = grammar_->machine();
  const std::optional<grammar::StringLengths> lengths = machine.StringsAt(walk_->states[0]);
  if (!lengths) return false;
  const std::optional<grammar::StringRun> run = machine.StringRunAt(walk_->states[0]);
  const bool any_string = lengths->all == grammar::kAnyLength;
  if (!run && any_string && !walk_->FindOther(&machine)) return false;
  if (any_string) {
    mask_ = impl.strings.back().mask;
  } else if (!TakeShared()) {
    AddStrings(*lengths);
  }
  AddOthers(run);
  walk_->begun = true;
  return true;
}

void MaskWork::AddStrings(const grammar::StringLengths& lengths) {
  const TokenMasks::Impl& impl = *masks_->impl_;
  if (lengths.all == 0 && lengths.some == grammar::kAnyLength) {
    // Shared masks must not depend on the text behind the terminal: a walk notices.
    if (walk_->spelling.empty()) {
      AddBlanks(*impl.spaces);
    } else {
      walk_->Add(*impl.spaces);
    }
    walk_->Add(*impl.other_strings);
  } else {
    const auto known = std::min<size_t>(lengths.all, grammar::kStringLengthMax);
    if (known > 0) mask_ = impl.strings[known - 1].mask;
    for (size_t i = known; i < impl.strings.size() && i < lengths.some; ++i) {
      walk_->Add(impl.strings[i].trie);
    }
  }
  walk_->num_shared = walk_->parts.size();
}

// Tokens of blanks alone: found at once, or else walked as others are.
void MaskWork::AddBlanks(const TokenTrie& blanks) {
  std::vector<TokenId> allowed;
  const Machine::Blanks found = grammar_->machine().FindBlanks(walk_->states[0], blanks, &allowed);
  if (found != Machine::Blanks::kFound) return walk_->Add(blanks);
  for (const TokenId id : allowed) SetBit(mask_, id);
}

// Takes the masks of strings if another grammar was at an equal place; false if none was.
bool MaskWork::TakeShared() {
  Machine& machine = grammar_->machine();
  const uint32_t state = walk_->states[0];
  if (machine.StringBytesAt(state).size() < kSharedFirstBytesMin) return false;
  std::optional<std::string> spelling = machine.SpellRestAt(state, kSpelledNodesMax);
  if (!spelling) return false;
  if (masks_->impl_->shared.Find(*spelling, mask_)) return true;
  walk_->spelling = *std::move(spelling);
  return false;
}

// After the last part of strings: others may have the same.
void MaskWork::KeepShared() {
  if (walk_->spelling.empty() || walk_->part < walk_->num_shared) return;
  if (!grammar_->machine().IsPastLimit()) {
    masks_->impl_->shared.Keep(std::move(walk_->spelling), mask_);
  }
  walk_->spelling.clear();
}

// The tries of tokens that are not string characters alone.
void MaskWork::AddOthers(const std::optional<grammar::StringRun>& run) {
  const TokenMasks::Impl& impl = *masks_->impl_;
  if (!run && walk_->other() == Machine::kDeadState) {
    AddBlanks(*impl.blanks);
    return walk_->Add(*impl.unblank_others);
  }
  if (!run) {
    walk_->Add(*impl.later_tails, 0, Walk::Start::kAtOther);
    walk_->Add(*impl.long_others);
    return walk_->Add(*impl.others, 0, Walk::Start::kExceptOther);
  }
  if (run->min == 0 && run->max == grammar::kAnyLength) return walk_->Add(*impl.all_tails);
  walk_->Add(*impl.long_others);
  if (run->min > 1 || run->max < kShortTokenBytesMax) {
    for (size_t i = 0; i < impl.tails.size(); ++i) walk_->Add(impl.tails[i], i);
  } else if (run->min == 1) {
    walk_->Add(impl.tails[0]);
    walk_->Add(*impl.later_tails, 1);
  } else {
    // More characters than a token has may follow: their number does not matter.
    walk_->Add(*impl.short_tails);
  }
}

// True if all tries are passed.
bool MaskWork::WalkOn(int64_t* work_left) {
  Machine& machine = grammar_->machine();
  const uint64_t before_work = machine.work();
  const auto work_max = static_cast<uint64_t>(std::max<int64_t>(*work_left, 0));
  uint64_t num_passed = 0, work = 0;
  while (walk_->part < walk_->parts.size() && work < work_max) {
    const bool begun = walk_->BeginPart(&machine);
    if (!begun || !WalkPart(work_max, before_work, &num_passed)) {
      work = work_max;
      break;
    }
    walk_->NextIfPassed();
    KeepShared();
    work = machine.work() - before_work + num_passed / kNodesPerWork;
  }
  *work_left -= static_cast<int64_t>(work);
  return walk_->part == walk_->parts.size();
}

// Goes on along one trie, until the work is `work_max`. False if a step was stopped.
bool MaskWork::WalkPart(uint64_t work_max, uint64_t before_work, uint64_t* num_passed) {
  Machine& machine = grammar_->machine();
  const Walk::Part& part = walk_->parts[walk_->part];
  const TokenTrie& trie = *part.trie;
  const TrieNode* const nodes = trie.nodes().data();
  const grammar::TrieBelow* const below = trie.below().data();
  const TrieSibling* const siblings = trie.siblings().data();
  const TokenId* const token_ids = trie.token_ids().data();
  uint32_t* const states = walk_->states.data() + 1;
  const bool except_other = part.start == Walk::Start::kExceptOther;
  // No step leads to a dead state that is not one.
  const uint32_t passed_by = except_other ? walk_->other() : Machine::kDeadState;
  bool shares = !walk_->spelling.empty();
  uint64_t work = machine.work() - before_work + *num_passed / kNodesPerWork;
  uint32_t i = walk_->node;
  for (const auto end = static_cast<uint32_t>(trie.num_nodes()); i < end && work < work_max;) {
    const TrieNode& node = nodes[i];
    const uint32_t before = states[node.depth - 1U];
    const uint32_t next = machine.Step(before, node.byte);
    if (next == Machine::kUnknown) {
      walk_->node = i;
      return false;
    }
    ++*num_passed;
    uint32_t after = i + 1;
    if (next == passed_by && next != Machine::kDeadState && below[i].is_string) {
      after = node.end;
    } else if (next != Machine::kDeadState) {
      states[node.depth] = next;
      if (shares && machine.MayEndWith(before, node.byte)) {
        shares = false;
        walk_->spelling.clear();
      }
      if (node.end > after && below[i].height > 0 && (below[i].groups & grammar::kNoGroup) == 0) {
        const grammar::FreeRun run = machine.FreeRunAt(next);
        const bool is_free = (below[i].groups & ~run.groups) == 0 && below[i].height <= run.length;
        if (is_free) after = node.end;
      }
      for (uint32_t j = node.tokens; j < nodes[after].tokens; ++j) SetBit(mask_, token_ids[j]);
      *num_passed += (after - i - 1) / kFreeNodesPerNode;
    } else {
      after = node.end;
      if (node.sibling != UINT32_MAX) {
        const TrieSibling* sibling = &siblings[node.sibling];
        while (!sibling->is_last && machine.Step(before, sibling->byte) == Machine::kDeadState) {
          ++sibling;
          ++*num_passed;
        }
        after = sibling->node;
      }
      // The result of `other` does not hold for these tokens. It gave none for tokens that begin
      // with no character.
      if (except_other && node.depth > 1) {
        ClearBits(mask_, trie.token_ids_of(i, after));
      }
    }
    i = after;
    work = machine.work() - before_work + *num_passed / kNodesPerWork;
  }
  walk_->node = i;
  return true;
}

}  // namespace minisgl
