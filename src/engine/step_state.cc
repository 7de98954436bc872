// See step_state.h.
#include "engine/step_state.h"

#include <vector>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

Result<std::unique_ptr<StepState>> StepState::Make(const ModelConfig& config,
                                                   std::unique_ptr<ModelState> model,
                                                   const EngineLimits& limits, Ops* ops) {
  std::unique_ptr<StepState> state(new StepState(config, std::move(model), limits, ops));
  MINISGL_RETURN_IF_ERROR(state->TakeTables());
  return state;
}

Status StepState::TakeTables() {
  const auto rows = static_cast<uint64_t>(limits_.max_running_requests) + 1;
  const auto row_pages =
      static_cast<uint64_t>(CeilDiv<int64_t>(limits_.max_seq_len, limits_.page_size));
  const auto row_tokens = static_cast<uint64_t>(limits_.max_seq_len);
  MINISGL_ASSIGN_OR_RETURN(page_table_, DeviceArray<int32_t>::Make(ops_, {rows, row_pages}));
  if (limits_.num_window_pages > 0) {
    MINISGL_ASSIGN_OR_RETURN(window_table_, DeviceArray<int32_t>::Make(ops_, {rows, row_pages}));
  }
  MINISGL_ASSIGN_OR_RETURN(token_pool_, DeviceArray<TokenId>::Make(ops_, {rows, row_tokens}));
  tables_ = {.page_table = page_table_.data(),
             .page_table_stride = static_cast<int64_t>(row_pages),
             .token_pool = token_pool_.data(),
             .token_pool_stride = limits_.max_seq_len,
             .window_table = window_table_.data()};
  return Status();
}

Status StepState::TakePages(int32_t num_pages, int32_t num_window_pages) {
  MINISGL_RETURN_IF_ERROR(model_->TakePages(num_pages, num_window_pages));
  limits_.num_pages = num_pages;
  limits_.num_window_pages = num_window_pages;
  if (has_windows()) {
    MINISGL_RETURN_IF_ERROR(FillPaddingRow(tables_.window_table, num_window_pages));
  }
  return FillPaddingRow(tables_.page_table, num_pages);
}

Status StepState::FillPaddingRow(int32_t* table, int32_t dummy_page) {
  const int64_t row_pages = tables_.page_table_stride;
  const std::vector<int32_t> row(static_cast<size_t>(row_pages), dummy_page);
  return ops_->Upload(table + limits_.max_running_requests * row_pages, row.data(),
                      row.size() * sizeof(int32_t));
}

}  // namespace minisgl::engine
