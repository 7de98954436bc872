// The hash table of Vocabulary. Slots contain ids; spellings are compared in place.
#include "text/tokenizer_json/vocabulary.h"

#include <functional>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/piece.h"

namespace minisgl::text {
namespace {

constexpr size_t kFirstSlots = 1024;

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

void Vocabulary::Grow() {
  const std::vector<Slot> before = std::move(slots_);
  slots_.assign(before.empty() ? kFirstSlots : before.size() * 2, Slot());
  const size_t mask = slots_.size() - 1;
  for (const Slot& taken : before) {
    if (taken.id < 0) continue;
    size_t slot = taken.hash & mask;  // no spelling occurs twice
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
    slots_[slot] = taken;
  }
}

Status Vocabulary::Add(std::string spelling, int64_t id) {
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
  const uint32_t hash = HashOf(spelling);
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

const std::string& Vocabulary::Spelling(TokenId id) const {
  static const std::string kNone;
  return id >= 0 && id < ids_end() ? spellings_[id] : kNone;
}

}  // namespace minisgl::text
