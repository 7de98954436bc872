#include "batch/score_totals.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "term/progress.h"

namespace minisgl::batch {
namespace {

constexpr double kUnits = 1 << 24;  // in 1
// Beyond any row's, so that the sum of millions of edited rows does not overflow.
constexpr double kRowMax = 1e12;
constexpr int64_t kRowTokensMax = int64_t{1} << 31;

}  // namespace

void ScoreTotals::Add(double logprob, int64_t num_tokens) {
  ++num_rows_;
  num_tokens_ += num_tokens;
  const double bounded = std::clamp(logprob, -kRowMax, kRowMax);
  const double whole = std::floor(bounded);
  whole_ += static_cast<int64_t>(whole);
  units_ += std::llround((bounded - whole) * kUnits);
}

void ScoreTotals::AddWritten(const Json& row) {
  const Json* const logprob = row.Find("logprob");
  const Json* const num_tokens = row.Find("num_tokens");
  if (logprob == nullptr || !logprob->is_number()) return;
  if (num_tokens == nullptr || !num_tokens->is_int()) return;
  if (num_tokens->as_int() < 0 || num_tokens->as_int() > kRowTokensMax) return;
  Add(logprob->as_double(), num_tokens->as_int());
}

double ScoreTotals::logprob() const {
  return static_cast<double>(whole_) + static_cast<double>(units_) / kUnits;
}

double ScoreTotals::perplexity() const {
  return std::exp(-logprob() / static_cast<double>(num_tokens_));
}

std::string ScoreTotals::Text() const {
  std::string text = fmt::format("{} in {} row{}", term::FormatCount(num_tokens_),
                                 term::FormatCount(num_rows_), num_rows_ == 1 ? "" : "s");
  if (num_tokens_ == 0) return text;
  return text + fmt::format(", log-probability {:.4f}, perplexity {:.4f}", logprob(), perplexity());
}

Json ScoreTotals::ToJson() const {
  Json json = Json(Json::Object());
  json.Set("rows", num_rows_).Set("tokens", num_tokens_).Set("logprob", logprob());
  json.Set("perplexity", num_tokens_ > 0 ? Json(perplexity()) : Json());
  return json;
}

}  // namespace minisgl::batch
