// What identifies a prefix: token ids, and marks where more than ids decides the keys and values.
//
// A mark holds a hash and stands at a place: the content of a picture at the first of its
// placeholder tokens, or an adapter at place 0. It makes everything from its place on different
// from the same tokens without it, or with another hash there. So two keys share exactly the tokens
// before the first place at which their tokens or their marks differ.
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "minisgl/base/ids.h"

namespace minisgl {

class Sha256;

// 128 bits of a cryptographic hash: equal hashes count as equal contents.
using ContentHash = std::array<uint64_t, 2>;

struct KeyMark {
  int64_t place = 0;  // in tokens from the beginning of the sequence
  ContentHash hash{};

  friend auto operator<=>(const KeyMark&, const KeyMark&) = default;
};

// True if `marks` may stand in a sequence of `num_tokens` tokens: their places are in it and never
// decrease. Several marks may stand at one place.
bool AreMarksOf(std::span<const KeyMark> marks, int64_t num_tokens);

// A view of a part of a sequence, usually of its beginning. As a span it owns nothing; and what can
// become a span of token ids can become a key without marks.
class PrefixKey {
 public:
  PrefixKey() = default;
  // The part of the sequence from place `begin` on. REQUIRES marks that are in it, in order.
  PrefixKey(std::span<const TokenId> tokens, std::span<const KeyMark> marks, int64_t begin = 0)
      : tokens_(tokens), marks_(marks), begin_(begin) {}
  template <typename Tokens>
  requires std::convertible_to<const Tokens&, std::span<const TokenId>> PrefixKey(
      const Tokens& tokens)
      : tokens_(tokens) {}  // implicit, as that of a span

  std::span<const TokenId> tokens() const { return tokens_; }
  // Their places count from the beginning of the sequence, not from begin().
  std::span<const KeyMark> marks() const { return marks_; }
  int64_t begin() const { return begin_; }
  size_t size() const { return tokens_.size(); }
  bool empty() const { return tokens_.empty(); }

  // Return a part of the key with its marks. REQUIRES the part to be in the key.
  PrefixKey first(size_t count) const {
    return {tokens_.first(count), MarksIn(begin_, begin_ + static_cast<int64_t>(count)), begin_};
  }
  PrefixKey subspan(size_t at) const { return subspan(at, size() - at); }
  PrefixKey subspan(size_t at, size_t count) const {
    const int64_t from = begin_ + static_cast<int64_t>(at);
    return {tokens_.subspan(at, count), MarksIn(from, from + static_cast<int64_t>(count)), from};
  }

 private:
  std::span<const KeyMark> MarksIn(int64_t from, int64_t to) const {
    return marks_.empty() ? marks_ : CutMarks(from, to);
  }
  std::span<const KeyMark> CutMarks(int64_t from, int64_t to) const;

  std::span<const TokenId> tokens_;
  std::span<const KeyMark> marks_;
  int64_t begin_ = 0;
};

// How many tokens two keys share, from their first token on. REQUIRES the same begin().
size_t CommonLength(const PrefixKey& a, const PrefixKey& b);

// Adds the marks of `key` to a hash: for each its place, counted from key.begin(), and its hash, 24
// bytes, the least significant of each number first. Adds nothing without marks.
void AddMarks(const PrefixKey& key, Sha256* hash);

}  // namespace minisgl
