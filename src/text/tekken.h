// tekken.json, the tokenizer of Mistral's models since Nemo: tokens in order of rank, a pattern
// that cuts text into words, and special tokens, whose ids precede all others.
//
// A word begins as single bytes. Two neighbours merge if their joined bytes are a token, the lowest
// rank first. A token's id is its rank plus the number of special tokens. White space is kept as it
// is; ill-formed UTF-8 becomes U+FFFD.
#pragma once

#include <memory>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/pipeline_tokenizer.h"

namespace minisgl::text {

inline constexpr const char* kTekkenFile = "tekken.json";

// Reads `model_dir`/tekken.json. kBadInput names the file and the key.
Result<std::unique_ptr<Tokenizer>> LoadTekken(const std::string& model_dir);

// Reads the content of tekken.json. kBadInput names the key.
Result<TokenizerParts> ReadTekkenParts(const Json& file);

}  // namespace minisgl::text
