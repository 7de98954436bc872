// Unigram: cuts one word into the pieces whose scores have the greatest sum.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer_json/word_model.h"

namespace minisgl::text {

struct UnigramOptions {
  TokenId unk_id = 0;          // of a character that no piece has; a run of them is one token
  bool byte_fallback = false;  // such a run becomes the tokens "<0xNN>" of its bytes if all exist
  std::vector<TokenId> never;  // as BpeOptions::never
};

// O(n m) in the length of a word and of the longest piece; 16 bytes of memory a byte of the word.
class Unigram : public WordModel {
 public:
  // `scores`: by id, finite. REQUIRES: the ids of `options` are in `vocabulary`.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
          UnigramOptions options);

  void Encode(std::string_view word, BpeScratch* scratch, std::vector<TokenId>* ids) const override;
  const Vocabulary& vocabulary() const override { return *vocabulary_; }

 private:
  // A node of the tree of pieces. Its children stand one after the other, by their bytes.
  struct Node {
    uint32_t first_child = 0;
    TokenId id = -1;  // of the piece that ends here
    uint16_t num_children = 0;
    uint8_t byte = 0;
  };
  void MakeTree();
  const Node* Child(const Node& node, uint8_t byte) const;
  void AppendUnknown(std::string_view text, std::vector<TokenId>* ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  std::vector<Node> nodes_;  // the root first
};

}  // namespace minisgl::text
