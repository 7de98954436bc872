#include "sched/computing_index.h"

#include "minisgl/base/check.h"

namespace minisgl::sched {

namespace {

// The finalizer of splitmix64 over (hash, word).
uint64_t AddWord(uint64_t hash, uint64_t word) {
  hash += word + 0x9E3779B97F4A7C15ull;
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

// No token id, so that the words of a mark are not those of tokens.
constexpr uint64_t kMarkFollows = uint64_t{1} << 32;

}  // namespace

std::vector<uint64_t> ChainHashes(const PrefixKey& key, int32_t page_size) {
  const auto page_tokens = static_cast<size_t>(page_size);
  const std::span<const TokenId> tokens = key.tokens();
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / page_tokens);
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  size_t i = 0;
  const auto add_tokens = [&](size_t end) {
    for (; i < end; ++i) {
      hash = AddWord(hash, static_cast<uint32_t>(tokens[i]));
      if ((i + 1) % page_tokens == 0) hashes.push_back(hash);
    }
  };
  for (const KeyMark& mark : key.marks()) {
    add_tokens(static_cast<size_t>(mark.place));
    hash = AddWord(hash, kMarkFollows);
    for (const uint64_t word : mark.hash) hash = AddWord(hash, word);
  }
  add_tokens(tokens.size());
  return hashes;
}

void ComputingIndex::Remove(uint64_t hash, std::vector<RequestState*>* waiters) {
  const auto found = counts_.find(hash);
  MINISGL_CHECK(found != counts_.end(), "a page that no request computes");
  if (--found->second == 0) counts_.erase(found);
  const auto listed = waiters_.find(hash);
  if (listed == waiters_.end()) return;
  waiters->insert(waiters->end(), listed->second.begin(), listed->second.end());
  num_waiters_ -= listed->second.size();
  waiters_.erase(listed);
}

void ComputingIndex::AddWaiter(uint64_t hash, RequestState* state) {
  waiters_[hash].push_back(state);
  ++num_waiters_;
}

void ComputingIndex::RemoveWaiter(uint64_t hash, RequestState* state) {
  const auto waiters = waiters_.find(hash);
  MINISGL_CHECK(waiters != waiters_.end() && std::erase(waiters->second, state) == 1,
                "a request waits for a page and is not listed");
  --num_waiters_;
  if (waiters->second.empty()) waiters_.erase(waiters);
}

}  // namespace minisgl::sched
