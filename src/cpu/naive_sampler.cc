// See naive_sampler.h. Sums are taken in the order that sampler.h fixes, so results are equal to
// the last bit.
#include "cpu/naive_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "minisgl/base/random.h"

namespace minisgl::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct RankedToken {
  float logit;
  TokenId id;
  double weight;  // exp((logit - largest) / temperature)
};

bool RanksBefore(const RankedToken& a, const RankedToken& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// True if some token can be chosen: no logit is NaN or +infinity, and one is above -infinity.
bool CanChoose(std::span<const float> logits) {
  const bool has_bad = std::any_of(logits.begin(), logits.end(), [](float logit) {
    return std::isnan(logit) || (std::isinf(logit) && logit > 0);
  });
  return !has_bad && *std::max_element(logits.begin(), logits.end()) > kMinusInfinity;
}

// The changed logit as a float. Finite values past the largest float become the largest float.
float ToLogit(double logit) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (std::isinf(logit) && logit < 0) return kMinusInfinity;
  return static_cast<float>(std::clamp(logit, -kMax, kMax));
}

// Bias, repetition penalty, presence and frequency penalties, bans: in this order.
void ChangeLogits(const SampleRowParams& row) {
  const SamplingParams& sampling = *row.sampling;
  const auto change = [&](TokenId id, auto&& apply) {
    row.logits[id] = ToLogit(apply(static_cast<double>(row.logits[id])));
  };
  for (const auto& [id, bias] : sampling.logit_bias) {
    change(id, [bias = bias](double logit) { return logit + bias; });
  }
  for (const TokenId id : std::set<TokenId>(row.history, row.history + row.history_len)) {
    const double penalty = sampling.repetition_penalty;
    change(id, [=](double logit) { return logit > 0 ? logit / penalty : logit * penalty; });
  }
  std::map<TokenId, int> counts;  // in the answer
  for (int32_t i = row.prompt_len; i < row.history_len; ++i) ++counts[row.history[i]];
  for (const auto& [id, count] : counts) {
    change(id, [&, count = count](double logit) {
      return logit - sampling.presence_penalty - sampling.frequency_penalty * count;
    });
  }
  if (row.mask != nullptr) {
    for (int64_t id = 0; id < row.vocab_size; ++id) {
      if ((row.mask[id / 32] >> (id % 32) & 1) == 0) row.logits[id] = kMinusInfinity;
    }
  } else if (row.history_len - row.prompt_len < sampling.min_tokens) {
    for (const TokenId id : sampling.banned_until_min) row.logits[id] = kMinusInfinity;
  }
}

void SortById(std::vector<RankedToken>* tokens) {
  std::sort(tokens->begin(), tokens->end(),
            [](const RankedToken& a, const RankedToken& b) { return a.id < b.id; });
}

double SumById(std::vector<RankedToken> tokens) {
  SortById(&tokens);
  double sum = 0;
  for (const RankedToken& token : tokens) sum += token.weight;
  return sum;
}

// Returns the tokens that top-k, then top-p, then min-p keep, by rank.
std::vector<RankedToken> KeepTokens(std::vector<RankedToken> ranked,
                                    const SamplingParams& sampling) {
  std::sort(ranked.begin(), ranked.end(), RanksBefore);
  const auto top_k = static_cast<size_t>(std::max(sampling.top_k, 0));
  if (top_k > 0 && top_k < ranked.size()) ranked.resize(top_k);
  if (sampling.top_p < 1) {
    const double wanted = sampling.top_p * SumById(ranked);
    double sum = 0;
    size_t count = 0;
    while (count < ranked.size() && sum < wanted) sum += ranked[count++].weight;
    ranked.resize(std::max<size_t>(count, 1));
  }
  std::erase_if(ranked, [&](const RankedToken& token) { return token.weight < sampling.min_p; });
  return ranked;
}

TokenId DrawToken(const SampleRowParams& row, std::span<const float> logits) {
  const SamplingParams& sampling = *row.sampling;
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<RankedToken> tokens;
  for (int64_t id = 0; id < row.vocab_size; ++id) {
    const double weight = std::exp((logits[id] - largest) / sampling.temperature);
    if (weight > 0) tokens.push_back({logits[id], static_cast<TokenId>(id), weight});
  }
  tokens = KeepTokens(std::move(tokens), sampling);
  SortById(&tokens);
  const auto index = static_cast<uint64_t>(row.history_len - row.prompt_len);
  const double target = UniformDouble(sampling.seed, index) * SumById(tokens);
  double sum = 0;
  for (const RankedToken& token : tokens) {
    sum += token.weight;
    if (sum > target) return token.id;
  }
  return tokens.back().id;
}

// Log-softmax of the raw logits: the chosen token's, and the most likely tokens'.
void AddLogprobs(const std::vector<float>& raw, int32_t num_logprobs, RowResult* result) {
  const float largest = *std::max_element(raw.begin(), raw.end());
  double sum = 0;
  std::vector<RankedToken> ranked;
  for (size_t id = 0; id < raw.size(); ++id) {
    sum += std::exp(static_cast<double>(raw[id]) - largest);
    ranked.push_back({raw[id], static_cast<TokenId>(id), 0});
  }
  const double log_sum = largest + std::log(sum);
  result->logprob = static_cast<float>(raw[result->token] - log_sum);
  std::sort(ranked.begin(), ranked.end(), RanksBefore);
  ranked.resize(std::min(ranked.size(), static_cast<size_t>(num_logprobs)));
  for (const RankedToken& token : ranked) {
    result->top_logprobs.push_back({token.id, static_cast<float>(token.logit - log_sum)});
  }
}

}  // namespace

void NaiveSampleRow(const SampleRowParams& row, RowResult* result) {
  *result = RowResult();
  result->outcome = RowResult::Outcome::kNonFinite;
  const std::span<const float> logits(row.logits, static_cast<size_t>(row.vocab_size));
  if (!CanChoose(logits)) return;
  const std::vector<float> raw(logits.begin(), logits.end());
  if (row.given >= 0) {
    if (!std::isfinite(raw[row.given])) return;
    result->outcome = RowResult::Outcome::kToken;
    result->token = row.given;
    return AddLogprobs(raw, row.sampling->num_logprobs, result);
  }
  ChangeLogits(row);
  if (!CanChoose(logits)) return;
  result->outcome = RowResult::Outcome::kToken;
  if (row.sampling->temperature > 0) {
    result->token = DrawToken(row, logits);
  } else {
    const auto largest = std::max_element(logits.begin(), logits.end());
    result->token = static_cast<TokenId>(largest - logits.begin());
  }
  if (row.sampling->num_logprobs >= 0) AddLogprobs(raw, row.sampling->num_logprobs, result);
}

}  // namespace minisgl::cpu
