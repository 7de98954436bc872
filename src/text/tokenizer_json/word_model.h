// The model of a tokenizer: converts one word to token ids ("model" of tokenizer.json).
//
// Immutable; thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/vocabulary.h"

namespace minisgl::text {

class BpeScratch;

class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the ids of `word`, which is well-formed UTF-8 unless the model says otherwise.
  // REQUIRES: word.size() <= kTextBytesMax.
  virtual void Encode(std::string_view word, BpeScratch* scratch,
                      std::vector<TokenId>* ids) const = 0;
  // As Encode, for a word of any length. False if the sink stopped the encoding.
  virtual Result<bool> EncodeTo(std::string_view word, BpeScratch* scratch,
                                const TokenSink& sink) const {
    std::vector<TokenId> ids;
    Encode(word, scratch, &ids);
    return sink(ids);
  }
  // True if every character of a word becomes part of a token, and no token encodes a run of
  // unbounded length. `spelled_bytes`: words are bytes in the spelling of byte-level models.
  virtual bool KeepsAll(bool /*spelled_bytes*/) const { return false; }

  virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace minisgl::text
