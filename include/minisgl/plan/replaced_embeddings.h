// Embeddings that replace the embeddings of token ids: a picture's, at its placeholder tokens.
#pragma once

#include <cstdint>

namespace minisgl {

// Embeddings that an engine keeps, as a number that it was given with them: [count, hidden_size].
using EmbeddingSource = uint64_t;

// Tokens [token, token + count) have embeddings [first, first + count) of `source`. A request
// counts tokens from its first one, a plan from the plan's first one.
struct ReplacedEmbeddings {
  int64_t token = 0;
  int32_t count = 0;  // at least 1
  int32_t first = 0;
  EmbeddingSource source = 0;

  friend bool operator==(const ReplacedEmbeddings&, const ReplacedEmbeddings&) = default;
};

}  // namespace minisgl
