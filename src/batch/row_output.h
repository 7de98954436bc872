// A row of the answer file as text: one JSON object and a line break, its keys in the order of the
// manual. Rows of an OpenAI Batch file are answered in its format (openai_batch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch/row.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::batch {

// One answer, complete.
struct RowAnswer {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::string finish_reason;
  Usage usage;
  AnswerTimes times;
};

// What of `answer` is reasoning, where the row's model tells it apart, and what is its text.
// Without the reasoning where the row hides it.
ReasoningPiece SplitAnswer(const Row& row, const RowAnswer& answer);

// Parts that both formats have. LogprobsJson: {"content": [...]}, in the shape of chat completions
// with the ids beside.
Json FloatJson(float value);
Json MetricsJson(const RowAnswer& answer);
Json LogprobsJson(const RowAnswer& answer, const Tokenizer& tokenizer);
Json TokenIdsJson(const RowAnswer& answer);
Json WarningsJson(const Row& row);

// `answers` are row.n, in order. `tokenizer` spells the tokens of log-probabilities.
std::string FormatAnswerRow(const Row& row, const std::vector<RowAnswer>& answers,
                            const Tokenizer& tokenizer);

std::string FormatErrorRow(const Row& row, const RowError& error);

}  // namespace minisgl::batch
