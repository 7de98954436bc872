// WordPiece: cuts one word into the longest pieces of the vocabulary, from its beginning on.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_json/word_model.h"

namespace minisgl::text {

struct WordPieceOptions {
  TokenId unk_id = 0;                            // of a word that cannot be cut
  std::string continuing_subword_prefix = "##";  // before each piece of a word but the first
  size_t characters_max = 100;                   // a longer word is unknown
  std::vector<TokenId> never;                    // as BpeOptions::never
};

// O(n m) in the length of a word, which is bounded by characters_max, and of the longest piece.
class WordPiece : public WordModel {
 public:
  // REQUIRES: the ids of `options` are in `vocabulary`.
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options);

  void Encode(std::string_view word, BpeScratch* scratch, std::vector<TokenId>* ids) const override;
  const Vocabulary& vocabulary() const override { return *vocabulary_; }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
  std::vector<bool> hidden_;  // by id
  size_t piece_bytes_max_ = 0;
};

}  // namespace minisgl::text
