// Reads tokenizer.json to the parts of a pipeline tokenizer.
//
// Models of types BPE, WordPiece and Unigram are supported. The sections "truncation" and "padding"
// are ignored: a text is never truncated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json/merge_list.h"
#include "text/tokenizer_json/tokenizer_parts.h"

namespace minisgl::text {

// Reads and parses the file; kBadInput names it.
Result<Json> ReadTokenizerJson(const std::string& path);
// Returns the type of the model: "BPE", "Unigram", ...; "" if the file does not define it.
std::string ModelType(const Json& file);
bool IsModelTypeRead(std::string_view type);

// The vocabulary and the merges of a BPE model, for a file that has them in another form than JSON.
struct TokenTable {
  std::vector<std::string_view> spellings;  // by id; valid while the parts are read
  const MergeList* merges = nullptr;
};

// Reads the parts from the content of tokenizer.json and the files beside it. If `table` is not
// null, its vocabulary and merges are read instead of those in `file`. kBadInput names the key.
Result<TokenizerParts> ReadTokenizerParts(const Json& file, const TokenizerConfig& config,
                                          const TokenTable* table = nullptr);

}  // namespace minisgl::text
