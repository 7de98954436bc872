#include "cli/vector_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "batch/ranked_output.h"
#include "cli/gguf_info.h"
#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/rerank_template.h"

namespace minisgl::cli {

namespace {

// A reranker's head: that of a classifier with one label, or the logits of two tokens.
Result<ScoreHead> RankHead(const TextModel& text, const ModelConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const bool has_head, HasScoreHead(text.dir));
  if (has_head) {
    MINISGL_ASSIGN_OR_RETURN(ScoreHead head, LoadScoreHead(text.dir, config));
    if (head.labels.size() == 1) return head;
    return UsageError(
        "the model is no reranker: its head has {} labels, not one (minisgl classify)",
        head.labels.size());
  }
  const RerankTemplate* const form = FindRerankTemplate(config.model_type);
  MINISGL_CHECK(form != nullptr, "a reranker without a template");
  const auto yes = text.tokenizer->IdOf(form->yes), no = text.tokenizer->IdOf(form->no);
  if (yes && no && !config.lacks_head) return LoadYesNoHead(text.dir, config, *yes, *no);
  return UsageError("the model is no reranker: it has {}",
                    config.lacks_head ? "no output head"
                                      : fmt::format("no tokens {} and {}", form->yes, form->no));
}

Status CheckRerankTemplate(const ModelConfig& config) {
  if (FindRerankTemplate(config.model_type) != nullptr) return Status();
  return UsageError(
      "it is not known what text around a query and a document rerankers of type {} want; those of "
      "type qwen3 run (Qwen3-Reranker)",
      Visible(config.model_type, 60));
}

// The elements of a vector that is not cut.
int64_t WidthOf(const VectorPipeline& pipeline, int64_t hidden_size) {
  int64_t width = hidden_size;
  for (const VectorModule& module : pipeline.modules) {
    if (module.dense) width = module.dense->out;
  }
  return width;
}

}  // namespace

Result<VectorSetup> VectorsFor(const batch::RunOptions& options, const TextModel& text,
                               const load::ModelFacts& facts) {
  VectorSetup setup;
  if (options.purpose == batch::RowPurpose::kEmbed) {
    MINISGL_ASSIGN_OR_RETURN(setup.pipeline,
                             LoadVectorPipeline(text.dir, facts.config.hidden_size));
  }
  if (!batch::IsScoring(options.purpose)) return setup;
  setup.pipeline.pooling = Pooling::kLast;
  if (options.purpose == batch::RowPurpose::kClassify) {
    MINISGL_ASSIGN_OR_RETURN(setup.head, LoadScoreHead(text.dir, facts.config));
    return setup;
  }
  MINISGL_RETURN_IF_ERROR(CheckRerankTemplate(facts.config));
  MINISGL_ASSIGN_OR_RETURN(setup.head, RankHead(text, facts.config));
  return setup;
}

Result<batch::EmbeddingOptions> EmbeddingFor(const batch::RunOptions& options,
                                             const load::ModelFacts& facts,
                                             const VectorSetup& setup) {
  const VectorPipeline& pipeline = setup.pipeline;
  batch::EmbeddingOptions embedding;
  embedding.pipeline = &pipeline;
  embedding.pad_id = setup.head.pad_id;
  if (options.purpose == batch::RowPurpose::kRerank) {
    embedding.form = FindRerankTemplate(facts.config.model_type);
    embedding.rank = {options.scoring.query, options.scoring.instruction};
  }
  if (options.purpose != batch::RowPurpose::kEmbed) return embedding;
  const batch::VectorOptions& vectors = options.vectors;
  const std::string name = vectors.is_query      ? "query"
                           : vectors.is_document ? "document"
                                                 : vectors.prompt_name;
  const std::string* const prompt =
      name.empty() ? &pipeline.default_prompt : pipeline.FindPrompt(name);
  if (prompt != nullptr) embedding.prompt = *prompt;
  if (!options.array.empty()) {
    const int64_t width = WidthOf(pipeline, facts.config.hidden_size);
    embedding.width =
        std::min(width, vectors.dimensions.value_or(pipeline.dimensions.value_or(width)));
  }
  if (prompt != nullptr || vectors.is_document) return embedding;
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
  if (!pipeline->pools_prompt) text += ", without those of the prompt";
  const int64_t width = WidthOf(*pipeline, config.hidden_size);
  for (const VectorModule& module : pipeline->modules) {
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

void DescribeScores(const std::string& model_dir, const ModelConfig& config, std::string* out) {
  const Result<bool> has_head = HasScoreHead(model_dir);
  if (!has_head.ok() || !*has_head) return;
  const Result<ScoreHead> head = LoadScoreHead(model_dir, config);
  if (!head.ok()) return InfoLine("labels", "no: " + head.status().message(), out);
  constexpr size_t kLabelsShown = 20;
  std::string names;
  for (size_t i = 0; i < std::min(head->labels.size(), kLabelsShown); ++i) {
    names += (i == 0 ? "" : ", ") + Visible(head->labels[i], 60);
  }
  if (head->labels.size() > kLabelsShown) names += ", ...";
  InfoLine("labels", fmt::format("{} ({})", head->labels.size(), names), out);
}

std::unique_ptr<batch::AnswerWriter> MakeVectorWriter(const batch::RunOptions& options,
                                                      bool ordered, const Tokenizer& tokenizer,
                                                      const VectorSetup& setup,
                                                      batch::RunOutput* files) {
  if (batch::IsScoring(options.purpose)) {
    return std::make_unique<batch::ScoredTextWriter>(
        files->output(), &tokenizer, ordered, files->errors(), &setup.head, options.scoring.raw);
  }
  const VectorPipeline& pipeline = setup.pipeline;
  const batch::VectorOptions& vectors = options.vectors;
  const batch::VectorFormat format = {vectors.dimensions ? vectors.dimensions : pipeline.dimensions,
                                      vectors.normalizes, vectors.in_base64,
                                      !options.array.empty()};
  return std::make_unique<batch::VectorWriter>(files->output(), &tokenizer, ordered,
                                               files->errors(), &pipeline, format);
}

}  // namespace minisgl::cli
