// How `minisgl embed` makes vectors: the model's pipeline, and the text before each text.
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
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl::cli {

// What the model makes vectors with; nothing unless they are wanted.
Result<VectorPipeline> PipelineFor(const batch::RunOptions& options, const TextModel& text,
                                   const load::ModelFacts& facts);

// The text before each text: of the prompt that is named, or the model's default. kUsage: the model
// has no such prompt. `pipeline` must outlive the result.
Result<batch::EmbeddingOptions> EmbeddingFor(const batch::RunOptions& options,
                                             const VectorPipeline& pipeline);

// The line of `info` on a model of vectors: how they are made, and its prompts. Nothing if the
// model states no pipeline; what is wrong with it if it cannot be used.
void DescribeVectors(const std::string& model_dir, const ModelConfig& config, std::string* out);

// All must outlive the writer.
std::unique_ptr<batch::AnswerWriter> MakeVectorWriter(const batch::RunOptions& options,
                                                      bool ordered, const Tokenizer& tokenizer,
                                                      const VectorPipeline& pipeline,
                                                      batch::RunOutput* files);

}  // namespace minisgl::cli
