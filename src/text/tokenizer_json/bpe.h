// Byte-pair encoding: one word to token ids by merging neighbours, the merge of the lowest rank
// first and the leftmost among equals.
//
// O(n log n) in the word's length. Immutable; usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/vocabulary.h"

namespace minisgl::text {

// Two tokens that become one; its place in a list of merges is its rank.
struct BpeMerge {
  TokenId left = 0, right = 0, result = 0;
};

struct BpeOptions {
  // A word begins as its UTF-8 characters, or as its single bytes where this is set.
  bool splits_into_bytes = false;
  bool ignore_merges = false;  // a word that is a token is that token
  // A character without a token is its bytes' tokens "<0xNN>" where all of them exist.
  bool byte_fallback = false;
  // What stands for a character without a token; none: it is left out. Neighbours become one where
  // `fuse_unk`.
  std::optional<TokenId> unk_id;
  bool fuse_unk = false;
  // Written before every character of a word but the first, and after the last, where they are
  // looked up.
  std::string continuing_subword_prefix, end_of_word_suffix;
  // Ids that no word becomes (but unk_id): their spellings are ordinary text here.
  std::vector<TokenId> never;
};

// What Encode needs besides; one may serve any number of calls, of one thread.
class BpeScratch {
 public:
  // Heap pushes and pops of all calls: the measure of work that tests bound.
  uint64_t num_heap_operations() const { return num_heap_operations_; }

 private:
  friend class Bpe;
  struct Symbol {
    TokenId id = 0;
    int32_t previous = -1, next = -1;
    bool is_gone = false;
  };
  struct Candidate {
    uint64_t key = 0;  // rank, then place: the smallest is next
    TokenId result = 0;
    bool operator<(const Candidate& other) const { return key > other.key; }  // a min-heap's order
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  uint64_t num_heap_operations_ = 0;
};

class Bpe {
 public:
  // Of equal pairs the last counts. REQUIRES that every id in `merges` and `options` is in
  // `vocabulary`.
  static Result<Bpe> Create(std::shared_ptr<const Vocabulary> vocabulary,
                            std::span<const BpeMerge> merges, BpeOptions options);
  // Two tokens merge wherever their spellings joined are a token, the smallest id first: what rank
  // files (tiktoken's, tekken.json) mean.
  static Result<Bpe> FromRanks(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options);

  // Appends the ids of `word` (well-formed UTF-8, but for splits_into_bytes).
  // REQUIRES word.size() <= kTextBytesMax.
  void Encode(std::string_view word, BpeScratch* scratch, std::vector<TokenId>* ids) const;

  // As Encode, for a word of any length: one longer than a window is encoded window by window
  // (encode_windows.h). False where the sink wanted no more.
  Result<bool> EncodeTo(std::string_view word, BpeScratch* scratch, const TokenSink& sink) const;

  // Whether every character of a word is in some token, and no token stands for a run of any
  // length; `spelled_bytes`: words are bytes as byte-level models spell them.
  bool KeepsAll(bool spelled_bytes) const;

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  // A pair's merge, in an open-addressed table (a power of two large, at most half full).
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    TokenId result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  Bpe() = default;
  Status Init(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options);
  void IndexMerges(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks);
  static uint64_t Pair(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t pair) const;
  const Slot* FindMerge(TokenId left, TokenId right) const;
  std::optional<TokenId> FindToken(std::string_view spelling) const;
  // Part of a word: what affixes are written before and after depends on where it is.
  struct WordPart {
    std::string_view text;
    bool is_first = true, is_last = true;
  };
  // `places` (may be null) gets the first byte of what each symbol stands for.
  void SplitWord(const WordPart& part, std::vector<BpeScratch::Symbol>* symbols,
                 std::vector<size_t>* places) const;
  bool AppendBytes(std::string_view spelling, std::vector<BpeScratch::Symbol>* symbols) const;
  void PushMerge(BpeScratch* scratch, int32_t left) const;
  void MergeAll(BpeScratch* scratch) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  std::vector<Slot> slots_;
  int slot_shift_ = 0;
  std::vector<bool> hidden_;        // by id
  std::vector<TokenId> byte_ids_;   // of "<0xNN>"; -1 where there is none
  std::vector<TokenId> ascii_ids_;  // of the characters below 128, where no affix applies; or -1
};

}  // namespace minisgl::text
