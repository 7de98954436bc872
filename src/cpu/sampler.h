// Chooses the next token of one row from its logits, on the host.
//
// All arithmetic is in double, in an order fixed by token ids: the token is a function of the row's
// logits, parameters, history and draw index, not of other rows or threads.
//
// Steps, in this order:
//   1. logit bias; repetition penalty over prompt and answer; presence and frequency penalties over
//      the answer; banned tokens until min_tokens, or those outside the mask;
//   2. temperature 0: the largest logit. Otherwise weights exp((logit - largest) / temperature);
//   3. top-k, then top-p of the remaining weight, then min-p relative to the largest weight;
//   4. the draw: with u = UniformDouble(seed, index), the first token by ascending id at which the
//      running sum of weights exceeds u * (sum of all).
// Equal logits rank by ascending id (greedy, top-k, top-p, the list of most likely tokens).
//
// The vocabulary is not sorted: selection takes time linear in V, except for a nucleus that holds
// most of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "minisgl/row_result.h"
#include "minisgl/sampling_params.h"

namespace minisgl::cpu {

struct SampleRowParams {
  float* logits;                   // [V]; overwritten
  int64_t vocab_size;              // V >= 1
  const SamplingParams* sampling;  // REQUIRES its token ids in [0, V)
  const int32_t* history;          // [history_len], ids in [0, V)
  int32_t prompt_len;
  int32_t history_len;             // the index of the draw is history_len - prompt_len
  TokenId given = -1;              // >= 0: the token, which is not chosen (SampleParams)
  const uint32_t* mask = nullptr;  // [ceil(V / 32)] as in SampleParams; null: all tokens
};

class Sampler {
 public:
  // The outcome is kNonFinite if a raw logit is NaN or +infinity, or if bans leave no token with a
  // finite logit, or if the given token's logit is not finite.
  void SampleRow(const SampleRowParams& row, RowResult* result);

  // Bytes of the workspace, and an upper bound on them.
  size_t bytes() const;
  static int64_t MaxBytes(int64_t vocab_size);

 private:
  struct Candidate {
    double weight;  // exp((logit - largest) / temperature), > 0
    float logit;
    TokenId id;
  };
  static bool RanksBefore(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  void ScoreGiven(const SampleRowParams& row, RowResult* result);
  void AddLogprobs(const SampleRowParams& row, const float* raw, RowResult* result);
  void ApplyPenalties(const SampleRowParams& row);
  void KeepUpTo(const Candidate& last);
  void KeepTopK(int32_t top_k);
  void KeepTopP(double top_p);
  TokenId Draw(const SampleRowParams& row, double largest);

  // Workspace, reused for every row.
  std::vector<Candidate> candidates_;  // by ascending id
  std::vector<Candidate> ranked_;
  std::vector<int32_t> counts_;    // [V], zero between rows
  std::vector<float> raw_logits_;  // [V] if log-probabilities are wanted
  std::vector<TokenId> ids_;
};

}  // namespace minisgl::cpu
