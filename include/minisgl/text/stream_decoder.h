// Token ids to text as they come. A piece never ends inside a UTF-8 character, and the pieces
// joined equal Tokenizer::Decode of all the ids. Used by one thread.
#pragma once

#include <memory>
#include <string>

#include "minisgl/text/tokenizer.h"

namespace minisgl {

class StreamDecoder {
 public:
  // `tokenizer` outlives this. `at_start`: the first id begins a text (one leading space may be
  // dropped); false where it goes on after a prompt, as every answer does whose prompt is not
  // empty. `keep_special` spells special tokens instead of leaving them out.
  explicit StreamDecoder(const Tokenizer* tokenizer, bool at_start = true,
                         bool keep_special = false);

  // The text that is certain once `id` is known; often one piece, "" while a character is
  // incomplete.
  std::string Push(TokenId id);
  // What is left: bytes of a character that never came are U+FFFD, as Decode gives them. Nothing
  // may follow.
  std::string Finish();

 private:
  std::string Drain(bool is_last);

  const Tokenizer* tokenizer_;
  std::unique_ptr<TokenDecoder> own_;  // the tokenizer's own rules; the rest is unused then
  bool at_start_;                      // a leading space would still be dropped
  bool keep_special_;
  std::string pending_;  // bytes of an incomplete character
};

}  // namespace minisgl
