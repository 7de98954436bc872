// Masks: the tokens of a vocabulary that may come next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {

namespace grammar {
class TokenTrie;
struct StringLengths;
struct StringRun;
}  // namespace grammar

// A vocabulary, prepared. Immutable; thread-safe.
class TokenMasks {
 public:
  // bytes[id]: the bytes that the token adds to a text; empty for control tokens and ids without a
  // text, which no grammar allows by their spelling. end_tokens: allowed exactly where the text may
  // end, regardless of bytes[]. Ids at or above bytes.size() are never allowed.
  TokenMasks(std::span<const std::string> bytes, std::span<const TokenId> end_tokens);
  ~TokenMasks();

  size_t num_tokens() const;
  size_t num_words() const { return (num_tokens() + 31) / 32; }

  // Sets bit `id` (word id / 32, bit id % 32) of `mask` exactly if all bytes of token `id` may
  // follow at `matcher`'s place. REQUIRES mask.size() >= num_words(); words after them become 0. A
  // pure function of the grammar and the accepted bytes.
  // False if no bit is set: the vocabulary cannot go on here, or the place is past a limit.
  bool Fill(const Matcher& matcher, std::span<uint32_t> mask) const;
  // Sets `mask` likewise if it is cached, and returns true. Returns false, with `mask` unchanged,
  // if it is not.
  bool FillKnown(const Matcher& matcher, std::span<uint32_t> mask) const;

 private:
  friend class MaskWork;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One mask, made in pieces of bounded work. Used by one thread at a time, not always the same.
class MaskWork {
 public:
  // Begins the mask for the current place of `matcher`. `masks` must outlive this object.
  MaskWork(const TokenMasks* masks, const Matcher& matcher);
  ~MaskWork();
  MaskWork(const MaskWork&) = delete;
  MaskWork& operator=(const MaskWork&) = delete;

  // Works until the mask is complete and returns true, or until `*work_left` is used up and returns
  // false. Lowers `*work_left` by the work done: 1 for each derivative computed, and for each 32
  // nodes of the vocabulary's trie passed. Small steps are not divided, so a little more may be
  // done. The grammar is locked meanwhile; if `yields`, only after others that wait for it have had
  // it.
  bool GoOn(int64_t* work_left, bool yields = false);
  // The mask that TokenMasks::Fill sets. REQUIRES that GoOn returned true.
  std::span<const uint32_t> mask() const { return mask_; }

 private:
  struct Walk;
  bool Begin();
  void AddBlanks(const grammar::TokenTrie& blanks);
  void AddStrings(const grammar::StringLengths& lengths);
  bool TakeShared();
  void KeepShared();
  void AddOthers(const std::optional<grammar::StringRun>& run);
  void End();
  bool WalkOn(int64_t* work_left);
  bool WalkPart(uint64_t work_max, uint64_t before_work, uint64_t* num_passed);

  const TokenMasks* masks_;
  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<uint32_t> mask_;
  std::unique_ptr<Walk> walk_;
};

}  // namespace minisgl
