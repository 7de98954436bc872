// Output rows of texts with labels and of documents with scores: the program's own, and answers to
// lines of a Batch file for /v1/rerank and /v1/score.
#pragma once

#include <string>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/row.h"
#include "batch/row_output.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/score_head.h"
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl::batch {

// `scores`: the numbers of each text.
// {"id", "index", "label", "scores": {label: score}, "num_tokens"}; for a list of texts "results",
// with the first two of each one.
std::string FormatClassifiedRow(const Row& row, const std::vector<RowAnswer>& answers,
                                const ScoreHead& head);
// {"id", "index", "score", "num_tokens"} of a document that is a row; of a row with documents
// {"id", "index", "results": [{"index", "relevance_score"}], "num_tokens"}, the best first.
std::string FormatRankedRow(const Row& row, const std::vector<RowAnswer>& answers);

// What a service answers: {"id", "model", "usage", "results"} to /v1/rerank, {"id", "object",
// "created", "model", "data", "usage"} to /v1/score.
Json RankedBody(const Row& row, const std::vector<RowAnswer>& answers, const std::string& id);

// How the states in answers become scores.
struct ScoreMaker {
  const ScoreHead* head;  // that gives labels or scores
  // Not null: the score of a document is the cosine of its vector and its query's
  // (Row::num_query_prompts).
  const VectorPipeline* pipeline = nullptr;
  bool raw = false;  // as in ScoresOf
};

// Makes scores of the states in answers, and writes them.
class ScoredTextWriter : public JsonAnswerWriter {
 public:
  // All pointers must outlive this.
  ScoredTextWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered,
                   ErrorFile* errors, const ScoreMaker& maker)
      : JsonAnswerWriter(output, tokenizer, ordered, /*streams=*/false, errors), maker_(maker) {}

  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;

 private:
  const ScoreMaker maker_;
};

}  // namespace minisgl::batch
