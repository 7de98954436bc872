// tokenizer.json, with the files beside it, to a Tokenizer.
//
// Models of type BPE are supported. The sections "truncation" and "padding" mean nothing here: a
// text is never cut.
#pragma once

#include <memory>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "text/pipeline_tokenizer.h"
#include "text/tokenizer_config.h"

namespace minisgl {

// Reads and parses the file; kBadInput names it.
Result<Json> ReadTokenizerJson(const std::string& path);
// "BPE", "Unigram", ...; "" where the file does not say.
std::string ModelType(const Json& file);

// The files of `model_dir` beside tokenizer.json are tokenizer_config.json, special_tokens_map.json
// and added_tokens.json (all optional).
Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& model_dir,
                                                     const Json& file);

// What `file` says together with `config`. kBadInput names the key.
Result<TokenizerParts> ReadTokenizerParts(const Json& file, const TokenizerConfig& config);

}  // namespace minisgl
