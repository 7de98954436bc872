// The place in a grammar after some bytes, for one answer.
//
// Used by one thread; matchers of one grammar may be used by several threads at once. Copies are
// cheap: they share the grammar and copy 4 bytes for each accepted byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/grammar/grammar.h"

namespace minisgl {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);
  Matcher(const Matcher& other);
  Matcher& operator=(const Matcher& other);
  ~Matcher();

  const CompiledGrammar& grammar() const { return *grammar_; }

  // Accepts the longest prefix of `bytes` that can begin a text of the grammar here; returns its
  // length.
  size_t AcceptPrefix(std::string_view bytes);
  // Accepts all of `bytes`, or returns false and changes nothing.
  bool Accept(std::string_view bytes);
  // True if the text may end here.
  bool IsAccepting() const;
  // True if nothing may follow but the end. Then IsAccepting() is true, too.
  bool MustEnd() const;
  // True if texts of the grammar go on from here, but none within GrammarLimits::state_items_max,
  // because the grammar is too ambiguous. Then MustEnd() is false.
  bool IsAtLimit() const;

  size_t num_bytes() const { return states_.size() - 1; }  // accepted since the beginning
  // Goes back to the state after the first `num_bytes` bytes. REQUIRES num_bytes <= num_bytes().
  void RollbackTo(size_t num_bytes);

  // Returns at most `bytes_max` bytes that must follow: it stops where the text may end or more
  // than one byte may follow.
  std::string ForcedBytes(size_t bytes_max = 256) const;
  // The bytes that may follow.
  ByteSet NextBytes() const;

 private:
  friend class grammar::Machine;
  friend class TokenMasks;
  friend class MaskWork;
  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<uint32_t> states_;  // states of the machine after 0, 1, ... accepted bytes
};

// Length of the longest prefix of `text` that can begin a text of `grammar`; `*accepted` is true if
// all of `text` is one. Keeps no history: needs memory for nesting only.
size_t MatchText(const CompiledGrammar& grammar, std::string_view text, bool* accepted);

}  // namespace minisgl
