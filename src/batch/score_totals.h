// The sum over all scored rows of an output: tokens, log-probability, perplexity.
//
// Rows are added in any order and the sum is the same: it is kept in fixed point, in multiples of
// 2^-24 (6e-8).
#pragma once

#include <cstdint>
#include <string>

#include "minisgl/base/json.h"

namespace minisgl::batch {

class ScoreTotals {
 public:
  void Add(double logprob, int64_t num_tokens);
  // Adds a row of an output file, unless it is an error row.
  void AddWritten(const Json& row);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_tokens() const { return num_tokens_; }
  double logprob() const;
  // exp of the mean negative log-probability of a token. REQUIRES a token.
  double perplexity() const;

  // "1,024 in 20 rows, log-probability -2150.12, perplexity 8.1636"
  std::string Text() const;
  // {"rows", "tokens", "logprob", "perplexity"}; perplexity is null if there is no token.
  Json ToJson() const;

 private:
  int64_t num_rows_ = 0, num_tokens_ = 0;
  int64_t whole_ = 0, units_ = 0;  // of the sum: in 1, and in 2^-24
};

}  // namespace minisgl::batch
