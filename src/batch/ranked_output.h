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

// Makes scores of the states in answers, and writes them.
class ScoredTextWriter : public JsonAnswerWriter {
 public:
  // All pointers must outlive this. `raw`: as in ScoresOf.
  ScoredTextWriter(term::Output* output, const Tokenizer* tokenizer, bool ordered,
                   ErrorFile* errors, const ScoreHead* head, bool raw)
      : JsonAnswerWriter(output, tokenizer, ordered, /*streams=*/false, errors),
        head_(*head),
        raw_(raw) {}

  Status WriteAnswers(const Row& row, const std::vector<RowAnswer>& answers) override;

 private:
  const ScoreHead& head_;
  const bool raw_;
};

}  // namespace minisgl::batch
