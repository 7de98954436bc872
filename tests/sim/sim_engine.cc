#include "sim/sim_engine.h"

#include <fmt/format.h>

#include "minisgl/base/check.h"

namespace minisgl::sim {

std::vector<TokenId> RightAnswer(std::span<const TokenId> prompt, int64_t max_tokens, bool stops,
                                 int64_t vocab, int64_t end_rate) {
  uint64_t prefix = 1;
  for (TokenId token : prompt) prefix = Extend(prefix, token);
  std::vector<TokenId> answer;
  while (static_cast<int64_t>(answer.size()) < max_tokens) {
    answer.push_back(NextToken(prefix, vocab, end_rate));
    if (stops && answer.back() == 0) break;
    prefix = Extend(prefix, answer.back());
  }
  return answer;
}

SimEngine::SimEngine(const EngineLimits& limits, int64_t end_rate)
    : limits_(limits),
      end_rate_(end_rate),
      shadow_(static_cast<size_t>(limits.num_pages) * static_cast<size_t>(limits.page_size), 0),
      page_table_(static_cast<size_t>(limits.max_running_requests)),
      token_pool_(static_cast<size_t>(limits.max_running_requests)) {
  for (auto& row : page_table_) {
    row.assign(static_cast<size_t>(limits.max_seq_len / limits.page_size + 1), -1);
  }
  for (auto& row : token_pool_) row.assign(static_cast<size_t>(limits.max_seq_len) + 1, -1);
}

void SimEngine::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

int64_t SimEngine::SlotOf(int32_t table_row, int64_t position) const {
  const PageId page = page_table_[static_cast<size_t>(table_row)]
                                 [static_cast<size_t>(position / limits_.page_size)];
  return page < 0 ? -1 : int64_t{page} * limits_.page_size + position % limits_.page_size;
}

void SimEngine::Apply(const BatchPlan& plan) {
  for (const PageTableWrite& write : plan.page_table_writes) {
    for (int32_t i = 0; i < write.count; ++i) {
      page_table_[static_cast<size_t>(write.table_row)][static_cast<size_t>(write.first + i)] =
          plan.pages[static_cast<size_t>(write.offset + i)];
    }
  }
  for (const TokenPoolWrite& write : plan.token_pool_writes) {
    for (int32_t i = 0; i < write.count; ++i) {
      token_pool_[static_cast<size_t>(write.table_row)][static_cast<size_t>(i)] =
          plan.tokens[static_cast<size_t>(write.offset + i)];
    }
  }
}

RowResult SimEngine::RunRow(const BatchPlan& plan, int row) {
  const auto at = static_cast<size_t>(row);
  const int32_t table_row = plan.table_row[at];
  const int64_t end = plan.kv_len[at];
  const int64_t begin = end - plan.extend_len(row);
  uint64_t prefix = 1;
  for (int64_t position = 0; position < end; ++position) {
    const TokenId token =
        token_pool_[static_cast<size_t>(table_row)][static_cast<size_t>(position)];
    if (token < 0)
      Violate(fmt::format("step {}: row {} has no token at {}", plan.step, row, position));
    prefix = Extend(prefix, token);
    const int64_t slot = SlotOf(table_row, position);
    if (slot < 0) {
      Violate(fmt::format("step {}: row {} maps no page at {}", plan.step, row, position));
      return {};
    }
    uint64_t& held = shadow_[static_cast<size_t>(slot)];
    if (position >= begin) {
      const auto token_index = static_cast<size_t>(plan.row_begin[at] + (position - begin));
      if (plan.positions[token_index] != position || plan.slots[token_index] != slot) {
        Violate(fmt::format("step {}: row {} writes {} where its table says {}", plan.step, row,
                            plan.slots[token_index], slot));
      }
      held = prefix;
      ++num_tokens_;
    } else if (held != prefix) {
      Violate(fmt::format("step {}: row {} reads another prefix's KV at {} (page {})", plan.step,
                          row, position, slot / limits_.page_size));
    }
  }
  RowResult result;
  if (plan.wants_token[at] != 0) {
    result.outcome = RowResult::Outcome::kToken;
    result.token = NextToken(prefix, limits_.vocab_size, end_rate_);
    token_pool_[static_cast<size_t>(table_row)][static_cast<size_t>(end)] = result.token;
  }
  return result;
}

void SimEngine::Launch(std::shared_ptr<const BatchPlan> plan) {
  MINISGL_CHECK(in_flight() < limits_.max_in_flight, "too many steps in flight");
  Apply(*plan);
  StepResult result;
  for (int row = 0; row < plan->num_rows(); ++row) {
    result.rows.push_back(RunRow(*plan, row));
    if (row == non_finite_row_) {
      result.rows.back() = {};
      result.rows.back().outcome = RowResult::Outcome::kNonFinite;
    }
    if (row == foreign_row_ && result.rows.back().outcome == RowResult::Outcome::kToken) {
      result.rows.back().token = static_cast<TokenId>(limits_.vocab_size);
    }
  }
  non_finite_row_ = foreign_row_ = -1;
  if (!fail_next_.empty()) {
    result.status = Status(StatusCode::kInternal, fail_next_);
    result.rows.clear();
    fail_next_.clear();
  }
  results_.push_back(std::move(result));
}

StepResult SimEngine::Collect() {
  MINISGL_CHECK(!results_.empty(), "nothing in flight");
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

}  // namespace minisgl::sim
