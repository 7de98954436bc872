// Choosing the next token of one row from its logits: one sampler for every implementation of Ops
// on the host.
//
// Everything is computed in double and in an order fixed by token ids, so a row's token is a
// function of its logits, its parameters, its history and the index of the draw; nothing of
// batch-mates or threads enters.
//
// The draw: with u = UniformDouble(seed, index), the candidates left by top-k, top-p and min-p are
// walked by ascending id, and the first whose running sum of weights exceeds u * (sum of all) is
// the token. Equal logits rank by ascending id wherever a rank matters (greedy, top-k, top-p, the
// list of most likely tokens). No sort of the vocabulary: selection takes time linear in V, except
// for a nucleus that holds most of it.
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
  int32_t history_len;  // the index of the draw is history_len - prompt_len
};

class Sampler {
 public:
  // kNonFinite where a raw logit is NaN or +infinity, or where bans leave no token with a finite
  // logit.
  void SampleRow(const SampleRowParams& row, RowResult* result);

  // Of the workspace, and the most of it.
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

  void AddLogprobs(const SampleRowParams& row, RowResult* result);
  void ApplyPenalties(const SampleRowParams& row);
  void KeepUpTo(const Candidate& last);
  void KeepTopK(int32_t top_k);
  void KeepTopP(double top_p);
  TokenId Draw(const SampleRowParams& row, double largest);

  // Workspace, kept from row to row.
  std::vector<Candidate> candidates_;  // by ascending id
  std::vector<Candidate> ranked_;
  std::vector<int32_t> counts_;    // [V], zero between rows
  std::vector<float> raw_logits_;  // [V] where log-probabilities are wanted
  std::vector<TokenId> ids_;
};

}  // namespace minisgl::cpu
