// The tokenizer of older encoders, without a tokenizer.json: vocab.txt, a piece a line, and the
// switches of tokenizer_config.json.
#pragma once

#include <string>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::text {

inline constexpr const char* kVocabularyFile = "vocab.txt";

// The content of a tokenizer.json that says the same. kBadInput names the file.
Result<Json> ReadVocabularyFile(const std::string& model_dir);

}  // namespace minisgl::text
