// A row of the answer file as text: one JSON object and a line break, its keys in the order of the
// manual.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/row.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// One answer, complete.
struct RowAnswer {
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::string finish_reason;
  Usage usage;
};

// `answers` are row.n, in order. `tokenizer` spells the tokens of log-probabilities.
std::string FormatAnswerRow(const Row& row, const std::vector<RowAnswer>& answers,
                            const Tokenizer& tokenizer);

std::string FormatErrorRow(const Row& row, const RowError& error);

}  // namespace minisgl
