// tokenizer.json, with the files beside it, to a Tokenizer.
//
// Models of type BPE are supported. The sections "truncation" and "padding" mean nothing here: a
// text is never cut.
#pragma once

#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json/tokenizer_parts.h"

namespace minisgl::text {

// Reads and parses the file; kBadInput names it.
Result<Json> ReadTokenizerJson(const std::string& path);
// "BPE", "Unigram", ...; "" where the file does not say.
std::string ModelType(const Json& file);

// What `file` says together with `config`. kBadInput names the key.
Result<TokenizerParts> ReadTokenizerParts(const Json& file, const TokenizerConfig& config);

}  // namespace minisgl::text
