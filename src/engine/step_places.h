// The places of a step, at which tokens are sampled, those at which given tokens are scored, and
// the results that rows get from both.
//
// A row that wants a token has one place after its last token, and one before each of its drafts:
// 1 + num_drafts, adjacent and in position order. The places of a step follow its rows.
//
// Places that score (BatchPlan::num_scored) are listed apart. They may be as many as the step has
// tokens; so their logits come in pieces of at most MaxPlaces, before those of the other places and
// in the same memory. The layers run once: Decoder::Logits reads what they left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "minisgl/batch_plan.h"
#include "minisgl/engine/engine.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

// The most places of a step.
inline int32_t MaxPlaces(const EngineLimits& limits) {
  return limits.max_running_requests + limits.max_step_drafts;
}

// The most rows of logits of a drafter's pass: of each row that drafts, or all drafts at once.
inline int64_t DrafterRows(const ModelConfig& drafter, int32_t max_running_requests,
                           int32_t max_step_drafts) {
  const bool is_block = drafter.prediction == PredictionLayer::kBlock;
  return std::max<int64_t>(
      1, is_block ? max_step_drafts : std::min(max_running_requests, max_step_drafts));
}

// Calls add(row, token, history_len) for each place: `token` is the one of the step after which the
// place samples, and `history_len` counts the row's tokens up to it. Row r's places are
// [place_begin[r], place_begin[r + 1]).
template <typename Add>
void ForEachPlace(const BatchPlan& plan, int32_t* place_begin, const Add& add) {
  int32_t num_places = 0;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    place_begin[row] = num_places;
    if (!plan.wants_token[row]) continue;
    for (int32_t from_end = plan.num_drafts[row]; from_end >= 0; --from_end) {
      add(row, plan.row_begin[row + 1] - 1 - from_end, plan.kv_len[row] - from_end);
      ++num_places;
    }
  }
  place_begin[plan.num_rows()] = num_places;
}

// Calls add(row, token) for each place that scores: `token` is the one of the step after which the
// next of plan.scored_ids stands.
template <typename Add>
void ForEachScored(const BatchPlan& plan, const Add& add) {
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    const int32_t end = plan.row_begin[row + 1] - (plan.wants_token[row] ? 1 : 0);
    for (int32_t token = end - plan.scored_len(row); token < end; ++token) add(row, token);
  }
}

// Moves `scored`, one result for each of plan.scored_ids, to the rows that they belong to.
inline void AddScored(const BatchPlan& plan, std::vector<RowResult>&& scored,
                      std::vector<RowResult>* rows) {
  auto next = scored.begin();
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    const auto end = next + plan.scored_len(row);
    (*rows)[static_cast<size_t>(row)].scored.assign(std::make_move_iterator(next),
                                                    std::make_move_iterator(end));
    next = end;
  }
}

// Gives each row that ends a pooled prompt its vector: one for each such span, in order.
inline void AddVectors(const BatchPlan& plan, std::vector<std::vector<float>>&& vectors,
                       std::vector<RowResult>* rows) {
  auto next = vectors.begin();
  size_t row = 0;
  for (const PoolingSpan& span : plan.extras.pooling) {
    if (!span.ends) continue;
    while (plan.row_begin[row + 1] <= span.token) ++row;
    (*rows)[row].vector = std::move(*next++);
  }
}

// The results of all rows: result_of(place, sampling) of the first place and of as many more as
// the row has accepted drafts (AcceptTokensParams). `num_accepted`: [R].
template <typename ResultOf>
std::vector<RowResult> MakeRowResults(const BatchPlan& plan, const int32_t* num_accepted,
                                      const ResultOf& result_of) {
  std::vector<RowResult> rows(plan.table_row.size());
  int32_t place = 0;
  for (int32_t row = 0; row < plan.num_rows(); ++row) {
    if (!plan.wants_token[row]) continue;
    const SamplingParams& sampling = *plan.sampling[row];
    RowResult& result = rows[static_cast<size_t>(row)];
    result = result_of(place, sampling);
    result.more.reserve(static_cast<size_t>(num_accepted[row]));
    for (int32_t i = 1; i <= num_accepted[row]; ++i) {
      result.more.push_back(result_of(place + i, sampling));
    }
    place += 1 + plan.num_drafts[row];
  }
  return rows;
}

}  // namespace minisgl::engine
