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

// A plan has an engine encode `content`, or a piece of it, before the plan's rows run. Its
// embeddings are known as `source` after the last piece, until a plan drops them. An engine has one
// input in pieces at a time, encodes no other one between them, and forgets it if a piece fails:
// pieces that were planned meanwhile do nothing.
struct EncoderRun {
  EmbeddingSource source = 0;
  int64_t num_embeddings = 0;
  ContentHash hash{};
  std::shared_ptr<const EncoderContent> content;
  // The piece: a part of the work, in embeddings. The first one begins at 0, each other one where
  // the one before it ended, and the last one ends at num_embeddings.
  int64_t begin = 0, end = 0;

  bool is_last() const { return end == num_embeddings; }
};

}  // namespace minisgl
