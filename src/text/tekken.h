// tekken.json, the tokenizer of Mistral's models since Nemo: tokens in the order of their ranks, a
// pattern that cuts text into words, special tokens before all others.
//
// Words are bytes from the start, and two neighbours merge wherever their bytes joined are a token,
// the lowest rank first. A token's id is its rank plus the number of special tokens. White space
// and ill-formed UTF-8 are not touched but that U+FFFD stands for the latter.
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

// What `file` says. kBadInput names the key.
Result<TokenizerParts> ReadTekkenParts(const Json& file);

}  // namespace minisgl::text
