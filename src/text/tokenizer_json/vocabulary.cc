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

size_t Vocabulary::SlotOf(std::string_view spelling) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(spelling) & mask;
  while (slots_[slot] >= 0 && spellings_[slots_[slot]] != spelling) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::Grow() {
  slots_.assign(slots_.empty() ? kFirstSlots : slots_.size() * 2, -1);
  for (size_t id = 0; id < spellings_.size(); ++id) {
    if (!spellings_[id].empty()) slots_[SlotOf(spellings_[id])] = static_cast<TokenId>(id);
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
  if (const auto taken = Find(spelling)) {
    return BadInput("\"{}\" has two ids, {} and {}", Visible(spelling), *taken, id);
  }
  if (num_tokens_ * 2 >= slots_.size()) Grow();
  slots_[SlotOf(spelling)] = static_cast<TokenId>(id);
  if (id >= ids_end()) spellings_.resize(static_cast<size_t>(id) + 1);
  spellings_[id] = std::move(spelling);
  ++num_tokens_;
  return {};
}

std::optional<TokenId> Vocabulary::Find(std::string_view spelling) const {
  if (slots_.empty()) return std::nullopt;
  const TokenId id = slots_[SlotOf(spelling)];
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

const std::string& Vocabulary::Spelling(TokenId id) const {
  static const std::string kNone;
  return id >= 0 && id < ids_end() ? spellings_[id] : kNone;
}

}  // namespace minisgl::text
