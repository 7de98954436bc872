// See step_tables.h.
#include "engine/step_tables.h"

#include <algorithm>

namespace minisgl::engine {

void ApplyPlanWrites(const PlanWritesParams& p) {
  for (int32_t i = 0; i < p.num_page_table_writes; ++i) {
    const PageTableWrite& write = p.page_table_writes[i];
    std::copy_n(p.pages + write.offset, write.count,
                p.page_table + write.table_row * p.page_table_stride + write.first);
  }
  for (int32_t i = 0; i < p.num_token_pool_writes; ++i) {
    const TokenPoolWrite& write = p.token_pool_writes[i];
    std::copy_n(p.tokens + write.offset, write.count,
                p.token_pool + write.table_row * p.token_pool_stride + write.first);
  }
}

void AcceptTokens(const AcceptTokensParams& p) {
  const auto is_token = [&](int32_t place) {
    return p.sampled[place].outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
  };
  for (int32_t row = 0; row < p.num_rows; ++row) {
    p.num_accepted[row] = 0;
    const int32_t begin = p.place_begin[row];
    const int32_t num_drafts = p.place_begin[row + 1] - begin - 1;
    if (num_drafts < 0) continue;
    int32_t* const tokens = p.token_pool + p.table_row[row] * p.token_pool_stride;
    const int32_t first = p.kv_len[row] - num_drafts;  // the position of the first place's token
    int32_t accepted = 0;
    while (accepted < num_drafts && is_token(begin + accepted) &&
           p.sampled[begin + accepted].token == tokens[first + accepted]) {
      ++accepted;
    }
    // Accepted drafts are in the pool already. A place without a token leaves the pool as it is: a
    // step in flight may read an older id there, which is valid, and its result is dropped.
    if (is_token(begin + accepted) && first + accepted < p.token_pool_stride) {
      tokens[first + accepted] = p.sampled[begin + accepted].token;
    }
    p.num_accepted[row] = accepted;
  }
}

}  // namespace minisgl::engine
