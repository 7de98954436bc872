// The Tokenizer of models whose rules form a pipeline, as tokenizer.json defines it and tekken.json
// implies it:
//   encoding  cut out added tokens, normalise, cut into words, encode each word (WordModel)
//   decoding  a chain of decoder stages
//
// Ill-formed UTF-8 in a text becomes U+FFFD, one for each maximal ill-formed run
// (ReplaceInvalidUtf8).
#pragma once

#include <memory>

#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/tokenizer_parts.h"

namespace minisgl::text {

// kBadInput if the normalised spelling of an added token cannot be matched.
// REQUIRES: model and decoder are set; the ids of `added` are below kVocabularyIdsMax; the model
// never gives added tokens except ordinary ones (IsOrdinaryAddedToken).
Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts);

}  // namespace minisgl::text
