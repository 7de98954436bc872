// The tokenizer and the chat template of a GGUF file, from its keys "tokenizer....".
//
// Reads the models "llama" (sentencepiece's byte-pair encoding by scores), "gpt2" (byte-level
// byte-pair encoding) and "gemma4" (byte-pair encoding of characters, and of bytes that are in no
// token). Each becomes what a model directory would have, and is checked as such.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "minisgl/base/status.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::text {

// kBadInput names the key.
Result<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(const GgufHeader& header);

// kBadInput names the file and the key.
Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path);

// The templates of the file by name: "default", and others that it may have; none if it has none.
Result<std::map<std::string, std::string>> LoadGgufTemplates(const std::string& path);

}  // namespace minisgl::text
