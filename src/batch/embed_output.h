// Output rows of texts that became vectors: the program's own, and answers to lines of an OpenAI
// Batch file for /v1/embeddings.
#pragma once

#include <string>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/row.h"
#include "batch/row_output.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl::batch {

// {"id", "index", "embedding": [...], "num_tokens"}; for a list of texts "embeddings", of each one.
std::string FormatEmbedRow(const Row& row, const std::vector<RowAnswer>& answers);

// {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}
Json EmbeddingsBody(const Row& row, const std::vector<RowAnswer>& answers, std::string model);

// How vectors are finished and written, where a row does not say it.
struct VectorFormat {
  std::optional<int64_t> dimensions;
  bool normalizes = false;
  bool in_base64 = false;
  bool for_array = false;  // lines of Batch files are answered by the program's own rows
};

// Writes rows of vectors, which it finishes (FinishVector).
class VectorWriter : public JsonAnswerWriter {
 public:
  // All pointers must outlive this.
  VectorWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered, ErrorFile* errors,
               const VectorPipeline* pipeline, const VectorFormat& format)
      : JsonAnswerWriter(output, tokenizer, ordered, /*streams=*/false, errors),
        pipeline_(*pipeline),
        format_(format) {}

  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;
  Status WriteError(const Row& row, const RowError& error) override;

 private:
  const VectorPipeline& pipeline_;
  const VectorFormat format_;
};

}  // namespace minisgl::batch
