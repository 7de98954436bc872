// What a tower computes before the model reads its embeddings: a picture, as the scheduler sees it.
#pragma once

#include <cstdint>
#include <memory>

#include "minisgl/base/prefix_key.h"
#include "minisgl/plan/replaced_embeddings.h"

namespace minisgl {

// What a tower reads. Engines define it; the scheduler passes it on.
struct EncoderContent {
  virtual ~EncoderContent() = default;
};

// One input of a request. Tokens [token, token + length) of the prompt begin and end with ones that
// have embeddings of it.
struct EncoderInput {
  int64_t token = 0;
  int64_t length = 0;          // at least 1
  int64_t num_embeddings = 0;  // at least 1: its share of a step's budget, and of the cache
  ContentHash hash{};          // inputs with equal hashes have equal embeddings
  // Its tokens attend to each other, so that one step computes all of them.
  bool attends_both_ways = false;
  std::shared_ptr<const EncoderContent> content;

  int64_t end() const { return token + length; }
};

// A plan has an engine encode `content` before the plan's rows run. Its embeddings are known as
// `source` until a plan drops them.
struct EncoderRun {
  EmbeddingSource source = 0;
  int64_t num_embeddings = 0;
  ContentHash hash{};
  std::shared_ptr<const EncoderContent> content;
};

}  // namespace minisgl
