// The parts of a pipeline tokenizer, as a tokenizer file defines them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "text/tokenizer_json/added_tokens.h"
#include "text/tokenizer_json/decoder.h"
#include "text/tokenizer_json/normalizer.h"
#include "text/tokenizer_json/pre_tokenizer.h"
#include "text/tokenizer_json/word_model.h"

namespace minisgl::text {

struct TokenizerParts {
  struct Role {
    std::string text;           // "" if there is none
    std::optional<TokenId> id;  // a token of the vocabulary or an added token
  };

  std::unique_ptr<const WordModel> model;             // with its vocabulary
  std::unique_ptr<const Normalizer> normalizer;       // null: text is not changed
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // null: a section is one word
  std::unique_ptr<const SpellingDecoder> decoder;
  std::vector<AddedTokenRule> added;  // ids may be in the vocabulary
  std::vector<TokenId> prefix, suffix;
  std::shared_ptr<const PairFrame> pair;
  Role bos, eos, unk, pad;
};

}  // namespace minisgl::text
