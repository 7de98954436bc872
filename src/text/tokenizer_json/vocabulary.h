// The spellings of a model's tokens and their ids, both ways.
//
// A spelling is any bytes (not empty, at most kPieceBytesMax); ids may have holes. Built once, then
// immutable and usable from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"

namespace minisgl::text {

// Ids are below this: real vocabularies have 262,144 tokens, and a table of so many is allocated
// for one id in a file.
inline constexpr TokenId kVocabularyIdsMax = 1 << 21;

class Vocabulary {
 public:
  // kBadInput for an id out of range or taken, and a spelling that is empty, too long or taken.
  Status Add(std::string spelling, int64_t id);

  std::optional<TokenId> Find(std::string_view spelling) const;
  bool Has(TokenId id) const { return id >= 0 && id < ids_end() && !spellings_[id].empty(); }
  // "" where there is no such id.
  const std::string& Spelling(TokenId id) const;
  TokenId ids_end() const { return static_cast<TokenId>(spellings_.size()); }  // largest id + 1
  size_t num_tokens() const { return num_tokens_; }

 private:
  // Where in `slots_` a spelling is, or would be.
  size_t SlotOf(std::string_view spelling) const;
  void Grow();

  std::vector<std::string> spellings_;  // by id; "" in a hole
  // Ids by their spellings' hashes: open-addressed, a power of two large, at most half full; -1
  // where free. Half the memory and time of a map that keeps the spellings again.
  std::vector<TokenId> slots_;
  size_t num_tokens_ = 0;
};

}  // namespace minisgl::text
