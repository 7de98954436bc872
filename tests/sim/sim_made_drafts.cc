// The drafter of the simulated engine, which is right as often as a DrafterPlan says, and what the
// engine checks of plans that use it: a row whose drafts it makes was read token by token since its
// tokens were written to the pool.
#include <fmt/core.h>

#include <algorithm>

#include "minisgl/base/check.h"
#include "sim/sim_engine.h"

namespace minisgl::sim {

void SimEngine::CheckFed(const BatchPlan& plan) {
  for (const TokenPoolWrite& write : plan.token_pool_writes) {
    if (write.first == 0) is_left_out_[static_cast<size_t>(write.table_row)] = false;
  }
  size_t next = 0;  // of the spans
  for (int row = 0; row < plan.num_rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    const auto table_row = static_cast<size_t>(plan.table_row[at]);
    const bool is_fed =
        next < plan.extras.hidden.size() &&
        plan.extras.hidden[next] == HiddenSpan{plan.row_begin[at], plan.extend_len(row)};
    next += is_fed ? 1 : 0;
    const auto extras = extras_.find(plan.sampling[at]->seed);
    if (is_fed && extras != extras_.end() &&
        (extras->second->parts() & ~limits_.draft_extras) != 0) {
      Violate(
          fmt::format("step {}: the drafter reads row {}, which has other extras", plan.step, row));
    }
    const bool makes = !plan.makes_drafts.empty() && plan.makes_drafts[at] != 0;
    if (!is_fed) is_left_out_[table_row] = true;
    if (makes && is_left_out_[table_row]) {
      Violate(fmt::format("step {}: row {} has drafts of tokens that the drafter did not read",
                          plan.step, row));
    }
    if (makes && (plan.num_drafts[at] < 1 || plan.extend_len(row) != 1 + plan.num_drafts[at])) {
      Violate(fmt::format("step {}: row {} has {} made drafts in {} tokens", plan.step, row,
                          plan.num_drafts[at], plan.extend_len(row)));
    }
  }
  if (next != plan.extras.hidden.size()) {
    Violate(fmt::format("step {}: the drafter reads parts of rows", plan.step));
  }
}

void SimEngine::MakeDrafts(const BatchPlan& plan) {
  if (!limits_.makes_drafts) {
    if (!plan.makes_drafts.empty()) Violate("drafts are asked for that the engine does not make");
    return;
  }
  if (!plan.makes_drafts.empty() && plan.makes_drafts.size() != plan.table_row.size()) {
    return Violate(fmt::format("step {}: {} rows of {} make drafts or not", plan.step,
                               plan.makes_drafts.size(), plan.table_row.size()));
  }
  CheckFed(plan);
  for (int row = 0; !plan.makes_drafts.empty() && row < plan.num_rows(); ++row) {
    const auto at = static_cast<size_t>(row);
    if (plan.makes_drafts[at] == 0) continue;
    std::vector<TokenId>& pool = token_pool_[static_cast<size_t>(plan.table_row[at])];
    const auto first = static_cast<size_t>(plan.kv_len[at] - plan.num_drafts[at]);
    PrefixWalk walk(MarksOf(plan, row));
    uint64_t prefix = walk.PushAll(std::span(pool).first(first));
    for (int32_t i = 0; i < plan.num_drafts[at]; ++i) {
      TokenId& token = pool[first + static_cast<size_t>(i)];
      if (token != 0) Violate(fmt::format("step {}: row {} brings drafts", plan.step, row));
      token = DraftAfter(drafter_, prefix, limits_.vocab_size, end_rate_);
      prefix = Extend(prefix, token);
    }
  }
}

std::vector<std::vector<TokenId>> SimEngine::GuideDrafts(const DraftGuide& guide) {
  MINISGL_CHECK(!in_flight_.empty() && in_flight_.back().waits_for_masks, "no step needs masks");
  const BatchPlan& plan = *in_flight_.back().plan;
  std::vector<std::vector<TokenId>> drafts;
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.masked(row) || !plan.makes_drafts_of(row)) continue;
    const auto at = static_cast<size_t>(row);
    const std::vector<TokenId>& pool = token_pool_[static_cast<size_t>(plan.table_row[at])];
    const auto end = pool.begin() + plan.kv_len[at];
    drafts.emplace_back(end - plan.num_drafts[at], end);
    for (size_t i = 0; i < drafts.back().size(); ++i) {
      std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(limits_.vocab_size)));
      const bool is_filled = guide(row, std::span(drafts.back()).first(i), mask);
      const bool is_empty =
          std::all_of(mask.begin(), mask.end(), [](uint32_t w) { return w == 0; });
      if (is_filled && is_empty) {
        Violate(fmt::format("step {}: row {} may have no draft {}", plan.step, row, i));
      }
    }
  }
  return drafts;
}

}  // namespace minisgl::sim
