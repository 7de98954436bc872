// The Tokenizer of models whose rules are a chain: added tokens are cut out, text is normalised,
// cut into words, and each word is byte-pair encoded; decoding is a chain too.
//
// tokenizer.json says the whole chain; tekken.json implies one. Ill-formed UTF-8 in a text is
// U+FFFD, one for each maximal ill-formed run (ReplaceInvalidUtf8).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/added_tokens.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/decoder.h"
#include "text/tokenizer_json/normalizer.h"
#include "text/tokenizer_json/pre_tokenizer.h"

namespace minisgl {

struct TokenizerParts {
  struct Role {
    std::string text;           // "" where there is none
    std::optional<TokenId> id;  // in the vocabulary or an added token
  };

  std::optional<Bpe> bpe;                             // with the model's vocabulary
  std::unique_ptr<const Normalizer> normalizer;       // null: none
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // null: a section is one word
  std::unique_ptr<const SpellingDecoder> decoder;
  std::vector<AddedTokenRule> added;  // ids may be the vocabulary's own
  std::vector<TokenId> prefix, suffix;
  Role bos, eos, unk, pad;
};

// kBadInput where an added token's normalised spelling cannot be matched.
// REQUIRES bpe and decoder; the ids of `added` below kVocabularyIdsMax; bpe's options.never holds
// the added tokens that are no ordinary ones (IsOrdinaryAddedToken).
Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts);

}  // namespace minisgl
