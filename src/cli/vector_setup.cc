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

// How the model ranks: encoders by their head for pairs; a decoder with one label, or with the
// logits of two tokens, by the template of its type; models of vectors by these.
Status SetUpRanking(const TextModel& text, const ModelConfig& config, VectorSetup* setup) {
  MINISGL_ASSIGN_OR_RETURN(const bool has_head, HasScoreHead(text.dir, config));
  const RerankTemplate* const form = FindRerankTemplate(config.model_type);
  if (!has_head && (config.is_encoder || HasVectorModules(text.dir) || config.lacks_head)) {
    setup->rank = RankKind::kCosine;
    MINISGL_ASSIGN_OR_RETURN(setup->pipeline, LoadVectorPipeline(text.dir, config.hidden_size));
    setup->pipeline.default_prompt.clear();
    return Status();
  }
  if (form == nullptr && !config.is_encoder) {
    return UsageError(
        "it is not known what text around a query and a document rerankers of type {} want; those "
        "of type qwen3 run (Qwen3-Reranker), cross encoders, and models of vectors",
        Visible(config.model_type, 60));
  }
  if (!has_head) {
    const auto yes = text.tokenizer->IdOf(form->yes), no = text.tokenizer->IdOf(form->no);
    if (!yes || !no) {
      return UsageError("the model is no reranker: it has no tokens {} and {}", form->yes,
                        form->no);
    }
    MINISGL_ASSIGN_OR_RETURN(setup->head, LoadYesNoHead(text.dir, config, *yes, *no));
    return Status();
  }
  MINISGL_ASSIGN_OR_RETURN(setup->head, LoadScoreHead(text.dir, config));
  if (setup->head.labels.size() != 1) {
    return UsageError(
        "the model is no reranker: its head has {} labels, not one (minisgl classify)",
        setup->head.labels.size());
  }
  if (!config.is_encoder) return Status();
  setup->rank = RankKind::kPair;
  MINISGL_ASSIGN_OR_RETURN(setup->head.scale, PairScale(text.dir));
  if (text.tokenizer->Pair() != nullptr) return Status();
  return UsageError("the tokenizer of {} does not say what stands between two texts",
                    Visible(text.dir, 400));
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
  if (options.purpose == batch::RowPurpose::kClassify) {
    MINISGL_ASSIGN_OR_RETURN(setup.head, LoadScoreHead(text.dir, facts.config));
  } else {
    MINISGL_RETURN_IF_ERROR(SetUpRanking(text, facts.config, &setup));
  }
  if (setup.rank == RankKind::kCosine) return setup;
  setup.pipeline.pooling = setup.head.pooling;
  if (!facts.config.is_encoder) return setup;
  MINISGL_RETURN_IF_ERROR(LoadTextBounds(text.dir, &setup.pipeline));
  if (setup.pipeline.default_prompt.empty()) return setup;
  return UsageError("{}: has a default prompt, which is not put before texts that get scores",
                    Visible(text.dir, 400));
}

Result<batch::EmbeddingOptions> EmbeddingFor(const batch::RunOptions& options,
                                             const TextModel& text, const load::ModelFacts& facts,
                                             const VectorSetup& setup) {
  const VectorPipeline& pipeline = setup.pipeline;
  batch::EmbeddingOptions embedding;
  embedding.pipeline = &pipeline;
  embedding.pad_id = setup.head.pad_id;
  if (batch::IsScoring(options.purpose) && facts.config.is_encoder) {
    embedding.has_types = facts.config.num_token_types > 1;
    if (setup.rank != RankKind::kCosine) embedding.pair = text.tokenizer->Pair();
  }
  if (options.purpose == batch::RowPurpose::kRerank) {
    if (setup.rank == RankKind::kTemplate) {
      embedding.form = FindRerankTemplate(facts.config.model_type);
    }
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
  for (const auto& [known, of_prompt] : pipeline.prompts) {
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
  const Result<bool> has_head = HasScoreHead(model_dir, config);
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
        files->output(), &tokenizer, ordered, files->errors(),
        batch::ScoreMaker{&setup.head, setup.rank == RankKind::kCosine ? &setup.pipeline : nullptr,
                          options.scoring.raw});
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
