// Which tokens of a vocabulary may come next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {

// A vocabulary, prepared. Immutable; thread-safe.
class TokenMasks {
 public:
  // bytes[id]: what the token adds to a text; empty for control tokens and ids without a text,
  // which no grammar allows by their spelling. end_tokens: allowed exactly where the text may end,
  // whatever bytes[] says of them. Ids at or above bytes.size() are never allowed.
  TokenMasks(std::span<const std::string> bytes, std::span<const TokenId> end_tokens);
  ~TokenMasks();

  size_t num_tokens() const;
  size_t num_words() const { return (num_tokens() + 31) / 32; }

  // Sets bit `id` (word id / 32, bit id % 32) of `mask` exactly if all bytes of token `id` may
  // follow at `matcher`'s place. REQUIRES mask.size() >= num_words(); words after them become 0. A
  // pure function of the grammar and the accepted bytes.
  // False if no bit is set: the vocabulary cannot go on here, or the place is past a limit.
  bool Fill(const Matcher& matcher, std::span<uint32_t> mask) const;

 private:
  friend class grammar::Machine;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
