#include "cli/vector_setup.h"

#include <fmt/core.h>

#include <string>

#include "cli/gguf_info.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cli {

Result<VectorPipeline> PipelineFor(const batch::RunOptions& options, const TextModel& text,
                                   const load::ModelFacts& facts) {
  if (options.purpose != batch::RowPurpose::kEmbed) return VectorPipeline();
  return LoadVectorPipeline(text.dir, facts.config.hidden_size);
}

Result<batch::EmbeddingOptions> EmbeddingFor(const batch::RunOptions& options,
                                             const VectorPipeline& pipeline) {
  const batch::VectorOptions& vectors = options.vectors;
  const std::string name = vectors.is_query      ? "query"
                           : vectors.is_document ? "document"
                                                 : vectors.prompt_name;
  if (name.empty()) return batch::EmbeddingOptions{&pipeline, pipeline.default_prompt};
  if (const std::string* const prompt = pipeline.FindPrompt(name)) {
    return batch::EmbeddingOptions{&pipeline, *prompt};
  }
  if (vectors.is_document) return batch::EmbeddingOptions{&pipeline, ""};
  std::string names;
  for (const auto& [known, text] : pipeline.prompts) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Visible(known, 60));
  }
  return UsageError("the model has no prompt named {} ({})", Visible(name, 60),
                    names.empty() ? "it has none" : "it has " + names);
}

void DescribeVectors(const std::string& model_dir, const ModelConfig& config, std::string* out) {
  const Result<VectorPipeline> pipeline = LoadVectorPipeline(model_dir, config.hidden_size);
  if (!pipeline.ok()) return InfoLine("vectors", "no: " + pipeline.status().message(), out);
  if (!pipeline->is_stated) return;
  std::string text;
  switch (pipeline->pooling) {
    case Pooling::kLast:
      text = "the state of the last token";
      break;
    case Pooling::kFirst:
      text = "the state of the first token";
      break;
    case Pooling::kMax:
      text = "the maximum of all states";
      break;
    case Pooling::kMean:
      text = "the mean of all states";
      break;
    case Pooling::kMeanSqrt:
      text = "the sum of all states by the root of their number";
      break;
    case Pooling::kWeightedMean:
      text = "the mean of all states, later ones weighing more";
      break;
  }
  int64_t width = config.hidden_size;
  for (const VectorModule& module : pipeline->modules) {
    if (module.dense) width = module.dense->out;
    text += module.dense ? ", a product" : ", normalised";
  }
  text += fmt::format("; {} elements", width);
  if (config.attends_both_ways) text += "; tokens attend to later ones, too";
  InfoLine("vectors", text, out);
  std::string names;
  for (const auto& [name, prompt] : pipeline->prompts) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Visible(name, 60));
  }
  if (!names.empty()) InfoLine("", "prompts: " + names, out);
}

std::unique_ptr<batch::AnswerWriter> MakeVectorWriter(const batch::RunOptions& options,
                                                      bool ordered, const Tokenizer& tokenizer,
                                                      const VectorPipeline& pipeline,
                                                      batch::RunOutput* files) {
  const batch::VectorOptions& vectors = options.vectors;
  const batch::VectorFormat format = {vectors.dimensions ? vectors.dimensions : pipeline.dimensions,
                                      vectors.normalizes, vectors.in_base64};
  return std::make_unique<batch::VectorWriter>(files->output(), &tokenizer, ordered,
                                               files->errors(), &pipeline, format);
}

}  // namespace minisgl::cli
