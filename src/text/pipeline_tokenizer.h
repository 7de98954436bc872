// The Tokenizer of models whose rules are a chain: added tokens are cut out, text is normalised,
// cut into words, and each word is byte-pair encoded; decoding is a chain too.
//
// tokenizer.json says the whole chain; tekken.json implies one. Ill-formed UTF-8 in a text is
// U+FFFD, one for each maximal ill-formed run (ReplaceInvalidUtf8).
#pragma once

#include <memory>

#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/tokenizer_parts.h"

namespace minisgl::text {

// kBadInput where an added token's normalised spelling cannot be matched.
// REQUIRES bpe and decoder; the ids of `added` below kVocabularyIdsMax; bpe's options.never holds
// the added tokens that are no ordinary ones (IsOrdinaryAddedToken).
Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts);

}  // namespace minisgl::text
