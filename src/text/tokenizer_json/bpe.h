// Byte-pair encoding: converts one word to token ids by merging neighbours, the merge of lowest
// rank first, the leftmost among equals.
//
// O(n log n) in the length of the word. Immutable; thread-safe.
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
#include "text/tokenizer_json/word_model.h"

namespace minisgl::text {

// Two tokens that merge into one. The index of a merge in the list of merges is its rank.
struct BpeMerge {
  TokenId left = 0, right = 0, result = 0;
};

struct BpeOptions {
  // Split a word into single bytes instead of UTF-8 characters before merging.
  bool splits_into_bytes = false;
  bool ignore_merges = false;  // a word that is a token becomes that token without merging
  // A character without a token becomes the tokens "<0xNN>" of its bytes if all of them exist.
  bool byte_fallback = false;
  // The token for a character without a token; if unset, the character is dropped. With `fuse_unk`,
  // adjacent ones become one token.
  std::optional<TokenId> unk_id;
  bool fuse_unk = false;
  // Affixes for the lookup of a character: the prefix is added before every character of a word
  // except the first, the suffix after the last.
  std::string continuing_subword_prefix, end_of_word_suffix;
  // Ids that encoding never produces (except unk_id): their spellings are ordinary text here.
  std::vector<TokenId> never;
};

// Working memory of Bpe::Encode. Can be reused for any number of calls on one thread.
class BpeScratch {
 public:
  // Heap pushes and pops of all calls: the measure of work that tests check.
  uint64_t num_heap_operations() const { return num_heap_operations_; }

 private:
  friend class Bpe;
  struct Symbol {
    TokenId id = 0;
    int32_t previous = -1, next = -1;
    bool is_gone = false;
  };
  struct Candidate {
    uint64_t key = 0;  // rank, then place; the smallest key is merged first
    TokenId result = 0;
    bool operator<(const Candidate& other) const { return key > other.key; }  // a min-heap's order
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  uint64_t num_heap_operations_ = 0;
};

class Bpe : public WordModel {
 public:
  // If pairs are equal, the last takes effect. REQUIRES: every id in `merges` and `options` is in
  // `vocabulary`.
  static Result<Bpe> Create(std::shared_ptr<const Vocabulary> vocabulary,
                            std::span<const BpeMerge> merges, BpeOptions options);
  // Two tokens merge if their joined spellings are a token, the smallest id first. This is the
  // meaning of rank files (tiktoken's, tekken.json).
  static Result<Bpe> FromRanks(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options);

  // Appends the ids of `word`, which is well-formed UTF-8 unless splits_into_bytes.
  // REQUIRES: word.size() <= kTextBytesMax.
  void Encode(std::string_view word, BpeScratch* scratch, std::vector<TokenId>* ids) const override;

  // As Encode, for a word of any length: a word longer than a window is encoded window by window
  // (encode_windows.h). False if the sink stopped the encoding.
  Result<bool> EncodeTo(std::string_view word, BpeScratch* scratch,
                        const TokenSink& sink) const override;

  bool KeepsAll(bool spelled_bytes) const override;

  const Vocabulary& vocabulary() const override { return *vocabulary_; }

 private:
  // The merge of a pair, in an open-addressing table (size a power of two, at most half full).
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
  size_t FirstSlotOf(uint64_t pair) const;
  size_t SlotOf(uint64_t pair) const;
  const Slot* FindMerge(TokenId left, TokenId right) const;
  std::optional<TokenId> FindToken(std::string_view spelling) const;
  // A part of a word. Its position decides which affixes apply.
  struct WordPart {
    std::string_view text;
    bool is_first = true, is_last = true;
  };
  // `places` (may be null) receives the first byte of the text of each symbol.
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
  std::vector<TokenId> byte_ids_;   // of "<0xNN>"; -1 if it does not exist
  std::vector<TokenId> ascii_ids_;  // of the characters below 128 without affixes; or -1
};

}  // namespace minisgl::text
