// See sampler.h.
#include "cpu/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

#include "minisgl/base/random.h"

namespace minisgl::cpu {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Logits of a piece, which fits the first-level cache: the index of the largest logit is searched
// within one piece only.
constexpr int64_t kPiece = 4096;

struct Largest {
  float value;    // NaN if a logit is NaN or +infinity
  int64_t begin;  // start of the first piece that holds it
};

// Keeps a maximum for each of kLanes lanes, so that the compiler vectorises the inner loop.
Largest FindLargest(const float* logits, int64_t count) {
  constexpr int64_t kLanes = 128;
  Largest result = {kBanned, 0};
  float largest[kLanes];
  int32_t bad[kLanes] = {};
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(count, begin + kPiece);
    std::fill_n(largest, kLanes, kBanned);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float logit = logits[i + lane];
        bad[lane] |= logit <= std::numeric_limits<float>::max() ? 0 : -1;
        largest[lane] = logit > largest[lane] ? logit : largest[lane];
      }
    }
    for (; i < end; ++i) {
      bad[0] |= logits[i] <= std::numeric_limits<float>::max() ? 0 : -1;
      largest[0] = std::max(largest[0], logits[i]);
    }
    const float of_piece = *std::max_element(largest, largest + kLanes);
    if (of_piece > result.value) result = {of_piece, begin};
  }
  for (const int32_t of_lane : bad) {
    if (of_lane != 0) return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  return result;
}

// The changed logit as a float. A finite value past the largest float becomes the largest float; a
// banned token stays banned.
float ClampToFinite(double logit) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return std::isinf(logit) && logit < 0 ? kBanned
                                        : static_cast<float>(std::clamp(logit, -kMax, kMax));
}

void ApplyBias(const SampleRowParams& row) {
  for (const auto& [id, bias] : row.sampling->logit_bias) {
    row.logits[id] = ClampToFinite(static_cast<double>(row.logits[id]) + bias);
  }
}

void ApplyMask(const SampleRowParams& row) {
  for (int64_t begin = 0; begin < row.vocab_size; begin += 32) {
    const uint32_t word = row.mask[begin / 32];
    const int64_t count = std::min<int64_t>(32, row.vocab_size - begin);
    if (word == 0) {
      std::fill_n(row.logits + begin, count, kBanned);
    } else if (word != ~uint32_t{0}) {
      for (int64_t i = 0; i < count; ++i) {
        if ((word >> i & 1) == 0) row.logits[begin + i] = kBanned;
      }
    }
  }
}

void ApplyBans(const SampleRowParams& row) {
  if (row.mask != nullptr) return ApplyMask(row);
  if (row.history_len - row.prompt_len >= row.sampling->min_tokens) return;
  for (TokenId id : row.sampling->banned_until_min) row.logits[id] = kBanned;
}

}  // namespace

// Log-softmax of the logits `raw`: before bias, penalties and bans.
void Sampler::AddLogprobs(const SampleRowParams& row, const float* raw, RowResult* result) {
  const float largest = *std::max_element(raw, raw + row.vocab_size);
  double sum = 0;
  for (int64_t id = 0; id < row.vocab_size; ++id) {
    sum += std::exp(static_cast<double>(raw[id]) - largest);
  }
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](TokenId id) { return static_cast<float>(raw[id] - log_sum); };
  result->logprob = logprob(result->token);

  const auto count = std::min<int64_t>(row.sampling->num_logprobs, row.vocab_size);
  if (count <= 0) return;
  ids_.resize(row.vocab_size);
  std::iota(ids_.begin(), ids_.end(), 0);
  std::partial_sort(ids_.begin(), ids_.begin() + count, ids_.end(), [&](TokenId a, TokenId b) {
    return raw[a] != raw[b] ? raw[a] > raw[b] : a < b;
  });
  for (int64_t i = 0; i < count; ++i) result->top_logprobs.push_back({ids_[i], logprob(ids_[i])});
}

// Applies the repetition penalty over prompt and answer, then presence and frequency penalties over
// the answer, once for each distinct token.
void Sampler::ApplyPenalties(const SampleRowParams& row) {
  const SamplingParams& sampling = *row.sampling;
  counts_.resize(row.vocab_size, 0);
  const auto for_each_distinct = [&](int32_t begin, auto&& apply) {
    for (int32_t i = begin; i < row.history_len; ++i) ++counts_[row.history[i]];
    for (int32_t i = begin; i < row.history_len; ++i) {
      const TokenId id = row.history[i];
      if (counts_[id] == 0) continue;
      row.logits[id] = ClampToFinite(apply(static_cast<double>(row.logits[id]), counts_[id]));
      counts_[id] = 0;
    }
  };
  if (sampling.repetition_penalty != 1.0) {
    for_each_distinct(0, [&](double logit, int32_t) {
      return logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    });
  }
  if (sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0) {
    for_each_distinct(row.prompt_len, [&](double logit, int32_t count) {
      return logit - sampling.presence_penalty - sampling.frequency_penalty * count;
    });
  }
}

// Drops the candidates that rank after `last`. The others stay ordered by id.
void Sampler::KeepUpTo(const Candidate& last) {
  std::erase_if(candidates_, [last](const Candidate& c) { return RanksBefore(last, c); });
}

void Sampler::KeepTopK(int32_t top_k) {
  if (top_k <= 0 || static_cast<size_t>(top_k) >= candidates_.size()) return;
  ranked_ = candidates_;
  std::nth_element(ranked_.begin(), ranked_.begin() + (top_k - 1), ranked_.end(), RanksBefore);
  KeepUpTo(ranked_[top_k - 1]);
}

// Keeps the fewest most likely candidates whose weights sum to at least top_p of the total; at
// least one.
void Sampler::KeepTopP(double top_p) {
  if (top_p >= 1.0) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;

  // Sorts pieces of growing size, from the top; most nuclei end within the first.
  ranked_ = candidates_;
  double sum = 0;
  size_t kept = 0;
  for (size_t piece = 64; kept < ranked_.size() && sum < top_p * total; piece *= 4) {
    const size_t end = std::min(ranked_.size(), kept + piece);
    const auto first = ranked_.begin() + static_cast<std::ptrdiff_t>(kept);
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < ranked_.size()) std::nth_element(first, last, ranked_.end(), RanksBefore);
    std::sort(first, last, RanksBefore);
    do {
      sum += ranked_[kept++].weight;
    } while (kept < end && sum < top_p * total);
  }
  KeepUpTo(ranked_[std::max<size_t>(kept, 1) - 1]);
}

TokenId Sampler::Draw(const SampleRowParams& row, double largest) {
  const SamplingParams& sampling = *row.sampling;
  candidates_.clear();
  candidates_.reserve(static_cast<size_t>(row.vocab_size));  // growing could take twice as much
  for (int64_t id = 0; id < row.vocab_size; ++id) {
    // Subtracted before dividing: at most 0, so the smallest temperature cannot overflow.
    const double weight = std::exp((row.logits[id] - largest) / sampling.temperature);
    if (weight > 0) {
      candidates_.push_back({weight, row.logits[id], static_cast<TokenId>(id)});
    }
  }
  KeepTopK(sampling.top_k);
  KeepTopP(sampling.top_p);
  if (sampling.min_p > 0) {
    // The largest weight is exactly 1, whatever top-k and top-p removed.
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < sampling.min_p; });
  }

  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const auto index = static_cast<uint64_t>(row.history_len - row.prompt_len);
  const double target = UniformDouble(sampling.seed, index) * total;
  double sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  return candidates_.back().id;  // `target` was rounded up to the total
}

size_t Sampler::bytes() const {
  return (candidates_.capacity() + ranked_.capacity()) * sizeof(Candidate) +
         counts_.capacity() * sizeof(int32_t) + raw_logits_.capacity() * sizeof(float) +
         ids_.capacity() * sizeof(TokenId);
}

int64_t Sampler::MaxBytes(int64_t vocab_size) {
  constexpr int64_t kTokenBytes =
      2 * sizeof(Candidate) + sizeof(int32_t) + sizeof(float) + sizeof(TokenId);
  return vocab_size * kTokenBytes;
}

void Sampler::ScoreGiven(const SampleRowParams& row, RowResult* result) {
  if (!std::isfinite(row.logits[row.given])) return;
  result->outcome = RowResult::Outcome::kToken;
  result->token = row.given;
  AddLogprobs(row, row.logits, result);
}

void Sampler::SampleRow(const SampleRowParams& row, RowResult* result) {
  const SamplingParams& sampling = *row.sampling;
  *result = RowResult();
  result->outcome = RowResult::Outcome::kNonFinite;
  Largest largest = FindLargest(row.logits, row.vocab_size);
  if (!std::isfinite(largest.value)) return;
  if (row.given >= 0) return ScoreGiven(row, result);
  if (sampling.num_logprobs >= 0) raw_logits_.assign(row.logits, row.logits + row.vocab_size);

  ApplyBias(row);
  if (sampling.UsesPenalties()) ApplyPenalties(row);
  ApplyBans(row);
  if (row.mask != nullptr || !sampling.logit_bias.empty() || sampling.UsesPenalties() ||
      !sampling.banned_until_min.empty()) {
    largest = FindLargest(row.logits, row.vocab_size);
    if (!std::isfinite(largest.value)) return;
  }

  result->outcome = RowResult::Outcome::kToken;
  if (sampling.temperature > 0) {
    result->token = Draw(row, largest.value);
  } else {
    const auto logits = std::span(row.logits, static_cast<size_t>(row.vocab_size));
    const auto at = std::find(logits.begin() + largest.begin, logits.end(), largest.value);
    result->token = static_cast<TokenId>(at - logits.begin());
  }
  if (sampling.num_logprobs >= 0) AddLogprobs(row, raw_logits_.data(), result);
}

}  // namespace minisgl::cpu
