// How `minisgl embed`, `classify` and `rerank` make vectors and scores: the model's pipeline or
// head, and the text around each text.
#pragma once

#include <memory>
#include <string>

#include "batch/embed_output.h"
#include "batch/row_prompt.h"
#include "batch/run_options.h"
#include "batch/run_output.h"
#include "load/model_loader.h"
#include "minisgl/base/status.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/model_config.h"
#include "minisgl/weights/score_head.h"
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl::cli {

// How a query and a document are judged: as one text of a template, as two texts that the model
// reads together, or by the cosine of their vectors.
enum class RankKind : uint8_t { kTemplate, kPair, kCosine };

struct VectorSetup {
  VectorPipeline pipeline;              // of minisgl embed; for scores the state of the last token
  ScoreHead head;                       // of minisgl classify and rerank
  RankKind rank = RankKind::kTemplate;  // of minisgl rerank
};

// What the model makes vectors or scores with; nothing unless they are wanted. kUsage: the model is
// no classifier, or no reranker.
Result<VectorSetup> VectorsFor(const batch::RunOptions& options, const TextModel& text,
                               const load::ModelFacts& facts);

// The text before each text, of the prompt that is named, or the model's default; or what stands
// around documents. kUsage: the model has no such prompt. `setup` must outlive the result.
Result<batch::EmbeddingOptions> EmbeddingFor(const batch::RunOptions& options,
                                             const TextModel& text, const load::ModelFacts& facts,
                                             const VectorSetup& setup);

// The line of `info` on a model of vectors: how they are made, and its prompts. Nothing if the
// model states no pipeline; what is wrong with it if it cannot be used.
void DescribeVectors(const std::string& model_dir, const ModelConfig& config, std::string* out);

// The line of `info` on the labels of a classifier. Nothing if the model is none.
void DescribeScores(const std::string& model_dir, const ModelConfig& config, std::string* out);

// All must outlive the writer.
std::unique_ptr<batch::AnswerWriter> MakeVectorWriter(const batch::RunOptions& options,
                                                      bool ordered, const Tokenizer& tokenizer,
                                                      const VectorSetup& setup,
                                                      batch::RunOutput* files);

}  // namespace minisgl::cli
