// Incremental decoding of token ids to text. A piece never ends inside a UTF-8 character, and the
// concatenated pieces equal Tokenizer::Decode of all ids. Used by one thread.
#pragma once

#include <memory>
#include <string>

#include "minisgl/text/tokenizer.h"

namespace minisgl {

class StreamDecoder {
 public:
  // `tokenizer` must outlive this object. `at_start`: the first id begins a text, whose leading
  // space may be dropped; false if the ids continue a prompt that is not empty. `keep_special`:
  // special tokens are spelled instead of omitted.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool at_start = true,
                         bool keep_special = false);

  // Returns the text that no later id can change; "" while a character is incomplete.
  std::string Push(TokenId id);
  // Returns the rest. The bytes of an incomplete character become U+FFFD, as in Decode. No call may
  // follow.
  std::string Finish();

 private:
  std::string Drain(bool is_last);

  const Tokenizer* tokenizer_;
  std::unique_ptr<TokenDecoder> own_;  // the tokenizer's own rules; if set, the rest is unused
  bool at_start_;                      // a leading space is still to be dropped
  bool keep_special_;
  std::string pending_;  // bytes of an incomplete character
};

}  // namespace minisgl
