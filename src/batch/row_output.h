// Formats a row of the answer file: one JSON object and a line break, with its keys in the order of
// the manual. Rows of an OpenAI Batch file have that format instead (openai_batch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch/row.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::batch {

// One complete answer.
struct RowAnswer {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::string finish_reason;
  Usage usage;
  AnswerTimes times;
};

// Splits `answer` into reasoning and text, if the row's model marks reasoning. The reasoning is
// left empty if the row hides it.
ReasoningPiece SplitAnswer(const Row& row, const RowAnswer& answer);

// Parts common to both formats. LogprobsJson: {"content": [...]}, in the shape of chat completions,
// with token ids added.
Json FloatJson(float value);
Json MetricsJson(const RowAnswer& answer);
Json LogprobsJson(const RowAnswer& answer, const Tokenizer& tokenizer);
Json TokenIdsJson(const RowAnswer& answer);
Json WarningsJson(const Row& row);

// `answers` has row.n elements, in order. `tokenizer` spells the tokens of log-probabilities.
std::string FormatAnswerRow(const Row& row, const std::vector<RowAnswer>& answers,
                            const Tokenizer& tokenizer);

std::string FormatErrorRow(const Row& row, const RowError& error);

}  // namespace minisgl::batch
