// The two-way map between the spellings of a model's tokens and their ids.
//
// A spelling is any string of 1 to kPieceBytesMax bytes; ids may have gaps. Immutable after
// building; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"

namespace minisgl::text {

// Upper bound on ids: real vocabularies have 262,144 tokens, and a single large id in a file makes
// the table that large.
inline constexpr TokenId kVocabularyIdsMax = 1 << 21;

class Vocabulary {
 public:
  // kBadInput for an id out of range or taken, and a spelling that is empty, too long or taken.
  Status Add(std::string spelling, int64_t id);
  // Adds spellings[i] with id first + i. Faster than a call of Add for each, because the table is
  // prefetched. On error, those before the bad one are added.
  Status AddAll(std::span<const std::string_view> spellings, int64_t first);
  // Takes memory for `num_tokens` tokens before they are added.
  void Reserve(size_t num_tokens);

  std::optional<TokenId> Find(std::string_view spelling) const;
  // Sets ids[i] to the id of spellings[i], or to -1 if there is none. Faster than a call of Find
  // for each, because the table and the spellings are prefetched.
  void FindAll(std::span<const std::string_view> spellings, std::span<TokenId> ids) const;
  bool Has(TokenId id) const { return id >= 0 && id < ids_end() && !spellings_[id].empty(); }
  // "" if the id does not exist.
  const std::string& Spelling(TokenId id) const;
  TokenId ids_end() const { return static_cast<TokenId>(spellings_.size()); }  // largest id + 1
  size_t num_tokens() const { return num_tokens_; }

 private:
  struct Slot {
    uint32_t hash = 0;  // of the spelling: others are mostly told apart without reading them
    TokenId id = -1;    // -1: free
  };
  static uint32_t HashOf(std::string_view spelling);
  Status AddHashed(std::string spelling, uint32_t hash, int64_t id);
  // Returns the slot of a spelling, or the slot in which it would be inserted.
  size_t SlotOf(std::string_view spelling, uint32_t hash) const;
  void Grow();
  void Resize(size_t num_slots);  // a power of two

  std::vector<std::string> spellings_;  // by id; "" in a gap
  // Ids by the hash of their spelling. Open addressing, size a power of two, at most half full.
  // Needs less memory and half the time of a map with its own copies of the spellings.
  std::vector<Slot> slots_;
  size_t num_tokens_ = 0;
};

}  // namespace minisgl::text
