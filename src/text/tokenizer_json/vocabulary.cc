// The hash table of Vocabulary. Slots contain ids; spellings are compared in place.
#include "text/tokenizer_json/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/piece.h"

namespace minisgl::text {
namespace {

constexpr size_t kFirstSlots = 1024;
// Spellings whose memory is prefetched together: their lines fit into the first cache.
constexpr size_t kSpellingsTogether = 64;

}  // namespace

uint32_t Vocabulary::HashOf(std::string_view spelling) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(spelling));
}

size_t Vocabulary::SlotOf(std::string_view spelling, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 &&
         (slots_[slot].hash != hash || spellings_[slots_[slot].id] != spelling)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::Grow() { Resize(slots_.empty() ? kFirstSlots : slots_.size() * 2); }

void Vocabulary::Reserve(size_t num_tokens) {
  num_tokens = std::min<size_t>(num_tokens, kVocabularyIdsMax);
  spellings_.reserve(num_tokens);
  const size_t num_slots = std::bit_ceil(2 * num_tokens);
  if (num_slots > slots_.size()) Resize(num_slots);
}

void Vocabulary::Resize(size_t num_slots) {
  const std::vector<Slot> before = std::move(slots_);
  slots_.assign(num_slots, Slot());
  const size_t mask = slots_.size() - 1;
  for (const Slot& taken : before) {
    if (taken.id < 0) continue;
    size_t slot = taken.hash & mask;  // no spelling occurs twice
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
    slots_[slot] = taken;
  }
}

Status Vocabulary::Add(std::string spelling, int64_t id) {
  const uint32_t hash = HashOf(spelling);
  return AddHashed(std::move(spelling), hash, id);
}

Status Vocabulary::AddAll(std::span<const std::string_view> spellings, int64_t first) {
  std::array<uint32_t, kSpellingsTogether> hashes;
  for (size_t begin = 0; begin < spellings.size(); begin += kSpellingsTogether) {
    const size_t count = std::min(kSpellingsTogether, spellings.size() - begin);
    if ((num_tokens_ + count) * 2 > slots_.size()) Grow();
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashOf(spellings[begin + i]);
      __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)], /*rw=*/1);
    }
    for (size_t i = 0; i < count; ++i) {
      MINISGL_RETURN_IF_ERROR(AddHashed(std::string(spellings[begin + i]), hashes[i],
                                        first + static_cast<int64_t>(begin + i)));
    }
  }
  return {};
}

Status Vocabulary::AddHashed(std::string spelling, uint32_t hash, int64_t id) {
  if (id < 0 || id >= kVocabularyIdsMax) {
    return BadInput("\"{}\" has id {}; ids must be 0 to {}", Visible(spelling), id,
                    kVocabularyIdsMax - 1);
  }
  if (spelling.empty()) return BadInput("the token with id {} has no text", id);
  if (spelling.size() > kPieceBytesMax) {
    return BadInput("the token with id {} has {} bytes; at most {} are supported", id,
                    spelling.size(), kPieceBytesMax);
  }
  if (Has(static_cast<TokenId>(id))) {
    return BadInput("id {} belongs to both \"{}\" and \"{}\"", id, Visible(spellings_[id]),
                    Visible(spelling));
  }
  if (num_tokens_ * 2 >= slots_.size()) Grow();
  Slot& slot = slots_[SlotOf(spelling, hash)];
  if (slot.id >= 0) {
    return BadInput("\"{}\" has two ids, {} and {}", Visible(spelling), slot.id, id);
  }
  slot = {hash, static_cast<TokenId>(id)};
  if (id >= ids_end()) spellings_.resize(static_cast<size_t>(id) + 1);
  spellings_[id] = std::move(spelling);
  ++num_tokens_;
  return {};
}

std::optional<TokenId> Vocabulary::Find(std::string_view spelling) const {
  if (slots_.empty()) return std::nullopt;
  const TokenId id = slots_[SlotOf(spelling, HashOf(spelling))].id;
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

void Vocabulary::FindAll(std::span<const std::string_view> spellings,
                         std::span<TokenId> ids) const {
  std::fill(ids.begin(), ids.end(), -1);
  if (slots_.empty()) return;
  const size_t mask = slots_.size() - 1;
  std::array<uint32_t, kSpellingsTogether> hashes;
  for (size_t begin = 0; begin < spellings.size(); begin += kSpellingsTogether) {
    const size_t count = std::min(kSpellingsTogether, spellings.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashOf(spellings[begin + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot& first = slots_[hashes[i] & mask];
      if (first.id >= 0 && first.hash == hashes[i]) __builtin_prefetch(&spellings_[first.id]);
    }
    for (size_t i = 0; i < count; ++i) {
      ids[begin + i] = slots_[SlotOf(spellings[begin + i], hashes[i])].id;
    }
  }
}

const std::string& Vocabulary::Spelling(TokenId id) const {
  static const std::string kNone;
  return id >= 0 && id < ids_end() ? spellings_[id] : kNone;
}

}  // namespace minisgl::text
