#include "sim/sim_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "minisgl/base/check.h"

namespace minisgl::sim {

int64_t SimStore::Draw(int64_t below) {
  const uint64_t hash = Extend(seed_ * 0x9E3779B97F4A7C15ull + ++draws_, -13);
  return static_cast<int64_t>(hash % static_cast<uint64_t>(below));
}

// A key begins with the hash of the prefix, as the engine's slots hold it.
std::vector<KvBlockKey> SimStore::Keys(const PrefixKey& key) const {
  std::vector<KvBlockKey> keys;
  PrefixWalk walk(key.marks());
  for (size_t i = 0; i < key.size(); ++i) {
    const uint64_t prefix = walk.Push(key.tokens()[i]);
    if ((i + 1) % static_cast<size_t>(plan_.block_tokens) != 0) continue;
    std::memcpy(keys.emplace_back(KvBlockKey{}).data(), &prefix, sizeof(prefix));
  }
  return keys;
}

int64_t SimStore::Find(KvBlockPath path) {
  int64_t found = 0;
  for (const KvBlockKey& key : path) {
    const auto block = blocks_.find(key);
    if (block == blocks_.end()) break;
    if (!is_healed_ && Draw(100) < plan_.lost_percent) {
      blocks_.erase(block);
      if (Draw(2) == 0) break;  // else it goes just after this look
    }
    ++found;
  }
  return found;
}

bool SimStore::ReadFrom(Blocks* blocks, KvBlockPath path, const PrefixKey& block,
                        std::span<std::byte> data) {
  const auto found = blocks->find(path.back());
  std::memset(data.data(), 0x5A, data.size());
  if (found == blocks->end()) return false;
  const Block& held = found->second;
  const bool is_same =
      std::equal(held.tokens.begin(), held.tokens.end(), block.tokens().begin(),
                 block.tokens().end()) &&
      std::equal(held.marks.begin(), held.marks.end(), block.marks().begin(), block.marks().end());
  if (!is_same) violation_ = "a block is read for other tokens";
  if (held.is_torn || !is_same) {
    blocks->erase(found);
    return false;
  }
  std::memcpy(data.data(), held.data.data(), data.size());
  return true;
}

void SimStore::WriteTo(Blocks* blocks, KvBlockPath path, const PrefixKey& block,
                       std::span<const std::byte> data) {
  const auto [place, is_new] = blocks->try_emplace(path.back());
  if (!is_new) return;
  place->second.tokens.assign(block.tokens().begin(), block.tokens().end());
  place->second.marks.assign(block.marks().begin(), block.marks().end());
  place->second.data.assign(data.begin(), data.end());
  place->second.is_torn = Draw(100) < plan_.torn_percent;
}

void SimStore::CheckHash(KvBlockPath path, const PrefixKey& block,
                         std::span<const std::byte> data) {
  uint64_t parent = 1, prefix = 0;
  if (path.size() > 1) std::memcpy(&parent, path[path.size() - 2].data(), sizeof(parent));
  std::memcpy(&prefix, path.back().data(), sizeof(prefix));
  if (PrefixWalk(parent, block.begin(), block.marks()).PushAll(block.tokens()) != prefix) {
    violation_ = "a block is saved with other tokens or marks than its key has";
  }
  if (data.size() < sizeof(uint64_t) ||
      std::memcmp(path.back().data(), data.data() + data.size() - sizeof(uint64_t),
                  sizeof(uint64_t)) != 0) {
    violation_ = "a block or a state is saved with another prefix's content";
  }
}

bool SimStore::Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) {
  ++num_reads_;
  return ReadFrom(&blocks_, path, block, data);
}

bool SimStore::Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) {
  if (is_full_) return false;
  if (++num_writes_ == plan_.full_after) is_full_ = true;
  if (is_full_ || Draw(100) < plan_.refused_percent) return false;
  CheckHash(path, block, data);
  WriteTo(&blocks_, path, block, data);
  return true;
}

bool SimStore::HasState(KvBlockPath path) {
  const auto found = states_.find(path.back());
  if (found == states_.end()) return false;
  if (is_healed_ || Draw(100) >= plan_.lost_percent) return true;
  states_.erase(found);
  return Draw(2) == 0;  // it goes just after this look
}

bool SimStore::ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) {
  return ReadFrom(&states_, path, block, data);
}

bool SimStore::WriteState(KvBlockPath path, const PrefixKey& block,
                          std::span<const std::byte> data) {
  ++num_state_writes_;
  CheckHash(path, block, data);
  if (is_full_ || !blocks_.contains(path.back()) || Draw(100) < plan_.refused_percent) return false;
  WriteTo(&states_, path, block, data);
  return true;
}

void SimStore::Fill(const PrefixKey& key, int64_t num_blocks, std::span<const int64_t> states) {
  const auto size = static_cast<size_t>(plan_.block_tokens);
  const std::vector<KvBlockKey> keys = Keys(key);
  PrefixWalk walk(key.marks());
  for (size_t i = 0; i < keys.size() && static_cast<int64_t>(i) < num_blocks; ++i) {
    Block& block = blocks_[keys[i]];
    const PrefixKey part = key.subspan(i * size, size);
    block.tokens.assign(part.tokens().begin(), part.tokens().end());
    block.marks.assign(part.marks().begin(), part.marks().end());
    block.data.resize(size * sizeof(uint64_t));
    for (size_t at = 0; at < size; ++at) {
      const uint64_t prefix = walk.Push(block.tokens[at]);
      std::memcpy(block.data.data() + at * sizeof(prefix), &prefix, sizeof(prefix));
    }
    block.is_torn = Draw(100) < plan_.torn_percent;
    if (std::find(states.begin(), states.end(), static_cast<int64_t>(i) + 1) == states.end()) {
      continue;
    }
    Block& state = states_[keys[i]];
    state.tokens = block.tokens;
    state.marks = block.marks;
    const uint64_t prefix = walk.prefix();
    state.data.resize(sizeof(prefix));
    std::memcpy(state.data.data(), &prefix, sizeof(prefix));
    state.is_torn = Draw(100) < plan_.torn_percent;
  }
}

void SimWork::Post(bool is_urgent, Work work) {
  (is_urgent ? urgent_ : other_).push_back(std::move(work));
}

void SimWork::Tick() {
  if (wait_ > 0 && delay_max_ > 0) {
    --wait_;
    return;
  }
  do {
    auto& queue = urgent_.empty() ? other_ : urgent_;
    if (queue.empty()) return;
    seed_ = Extend(seed_, -17);
    const size_t next = urgent_.empty() ? 0 : (seed_ >> 40) % std::min<size_t>(queue.size(), 8);
    const auto at = queue.begin() + static_cast<std::ptrdiff_t>(next);
    const Work work = std::move(*at);
    queue.erase(at);
    work(&scratch_);
    wait_ = delay_max_ > 0 ? static_cast<int64_t>(seed_ >> 8) % (delay_max_ + 1) : 0;
  } while (wait_ == 0);
}

}  // namespace minisgl::sim
