// One step. See step_runner.h.
#include "engine/step_runner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/plan_check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

Result<std::unique_ptr<StepRunner>> StepRunner::Make(const ModelConfig& config,
                                                     const Checkpoint& checkpoint,
                                                     const WeightFormat& weight_format,
                                                     const EngineLimits& limits,
                                                     std::unique_ptr<Ops> ops) {
  std::unique_ptr<StepRunner> runner(new StepRunner);
  runner->limits_ = limits;
  runner->pages_per_row_ = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  runner->ops_ = std::move(ops);
  const DecoderOptions options{
      .weight_format = weight_format,
      .activation_dtype = runner->ops_->activation_dtype(),
      .max_step_tokens = limits.max_step_tokens,
      .max_logit_rows = int64_t{limits.max_running_requests} + limits.max_step_drafts,
      .max_seq_len = limits.max_seq_len};
  Ops* const device = runner->ops_.get();
  MINISGL_ASSIGN_OR_RETURN(runner->decoder_, Decoder::Load(config, checkpoint, options, device));
  MINISGL_ASSIGN_OR_RETURN(
      runner->kv_,
      KvStorage::Make(config, KvDType(options.activation_dtype, weight_format.dtype),
                      limits.num_pages, limits.page_size, device, limits.num_window_pages));
  const auto table_rows = static_cast<uint64_t>(limits.max_running_requests) + 1;
  MINISGL_ASSIGN_OR_RETURN(
      runner->page_table_,
      DeviceArray<int32_t>::Make(device,
                                 {table_rows, static_cast<uint64_t>(runner->pages_per_row_)}));
  MINISGL_ASSIGN_OR_RETURN(
      runner->token_pool_,
      DeviceArray<TokenId>::Make(device, {table_rows, static_cast<uint64_t>(limits.max_seq_len)}));
  MINISGL_ASSIGN_OR_RETURN(
      runner->token_ids_,
      DeviceArray<TokenId>::Make(device, {static_cast<uint64_t>(limits.max_step_tokens)}));
  // The padding row reads and writes the dummy page alone.
  std::fill_n(runner->PageTableRow(limits.max_running_requests), runner->pages_per_row_,
              limits.num_pages);
  if (limits.num_window_pages > 0) {
    MINISGL_ASSIGN_OR_RETURN(
        runner->window_table_,
        DeviceArray<int32_t>::Make(device,
                                   {table_rows, static_cast<uint64_t>(runner->pages_per_row_)}));
    std::fill_n(runner->window_table_.data() + limits.max_running_requests * runner->pages_per_row_,
                runner->pages_per_row_, limits.num_window_pages);
  }
  return runner;
}

int32_t* StepRunner::PageTableRow(int32_t table_row) {
  return page_table_.data() + table_row * pages_per_row_;
}

TokenId* StepRunner::TokenPoolRow(int32_t table_row) {
  return token_pool_.data() + int64_t{table_row} * limits_.max_seq_len;
}

void StepRunner::ApplyWrites(const BatchPlan& plan) {
  for (const PageTableWrite& write : plan.page_table_writes) {
    std::copy_n(plan.pages.data() + write.offset, write.count,
                PageTableRow(write.table_row) + write.first);
    if (limits_.num_window_pages == 0) continue;
    std::copy_n(plan.window_pages.data() + write.offset, write.count,
                window_table_.data() + write.table_row * pages_per_row_ + write.first);
  }
  for (const TokenPoolWrite& write : plan.token_pool_writes) {
    std::copy_n(plan.tokens.data() + write.offset, write.count,
                TokenPoolRow(write.table_row) + write.first);
  }
}

void StepRunner::GatherTokenIds(const BatchPlan& plan) {
  TokenId* ids = token_ids_.data();
  for (int row = 0; row < plan.num_rows(); ++row) {
    const TokenId* tokens = TokenPoolRow(plan.table_row[row]);
    for (int t = plan.row_begin[row]; t < plan.row_begin[row + 1]; ++t) {
      ids[t] = tokens[plan.positions[t]];
    }
  }
}

StepResult StepRunner::Run(const BatchPlan& plan) {
  if constexpr (kDebugBuild) {
    const std::string fault = FindPlanShapeFault(plan, limits_);
    MINISGL_CHECK(fault.empty(), "step {}: {}", plan.step, fault);
  }
  ApplyWrites(plan);
  if constexpr (kDebugBuild) {
    const EngineState state{page_table_.data(), pages_per_row_, token_pool_.data(),
                            window_table_.data()};
    const std::string fault = FindPlanStateFault(plan, limits_, state);
    MINISGL_CHECK(fault.empty(), "step {}: {}", plan.step, fault);
  }
  GatherTokenIds(plan);

  places_.Clear();
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (plan.wants_token[row]) AddPlaces(plan, row);
  }
  float* const logits =
      decoder_->Forward({.num_tokens = plan.num_tokens(),
                         .num_rows = plan.num_rows(),
                         .token_ids = token_ids_.data(),
                         .positions = plan.positions.data(),
                         .slots = plan.slots.data(),
                         .table_row = plan.table_row.data(),
                         .row_begin = plan.row_begin.data(),
                         .kv_len = plan.kv_len.data(),
                         .page_table = page_table_.data(),
                         .page_table_stride = pages_per_row_,
                         .window_page_table = window_table_.data(),
                         .window_slots = plan.window_slots.data(),
                         .kv = kv_.layers(),
                         .logit_tokens = places_.token.data(),
                         .num_logit_tokens = static_cast<int32_t>(places_.token.size()),
                         .step = ++num_steps_});

  StepResult result;
  result.rows.resize(plan.table_row.size());
  if (!places_.token.empty()) SamplePlaces(plan, logits, &result);
  return result;
}

void StepRunner::AddPlaces(const BatchPlan& plan, int row) {
  for (int32_t from_end = plan.num_drafts[row]; from_end >= 0; --from_end) {
    places_.token.push_back(plan.row_begin[row + 1] - 1 - from_end);
    places_.sampling.push_back(plan.sampling[row]);
    places_.history.push_back(TokenPoolRow(plan.table_row[row]));
    places_.prompt_len.push_back(plan.prompt_len[row]);
    places_.history_len.push_back(plan.kv_len[row] - from_end);
  }
}

void StepRunner::SamplePlaces(const BatchPlan& plan, float* logits, StepResult* result) {
  places_.results.resize(places_.history.size());
  // All before any is accepted: a place's history holds the drafts before it.
  ops_->Sample({.logits = logits,
                .num_rows = std::ssize(places_.results),
                .vocab_size = limits_.vocab_size,
                .sampling = places_.sampling.data(),
                .history = places_.history.data(),
                .prompt_len = places_.prompt_len.data(),
                .history_len = places_.history_len.data(),
                .results = places_.results.data()});
  RowResult* sampled = places_.results.data();
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.wants_token[row]) continue;
    AcceptDrafts(plan, row, sampled, &result->rows[static_cast<size_t>(row)]);
    sampled += 1 + plan.num_drafts[row];
  }
}

void StepRunner::AcceptDrafts(const BatchPlan& plan, int row, RowResult* sampled,
                              RowResult* result) {
  const int32_t num_drafts = plan.num_drafts[row];
  const int32_t first = plan.kv_len[row] - num_drafts;  // the position of sampled[0]
  TokenId* const tokens = TokenPoolRow(plan.table_row[row]);
  const auto is_token = [&](int32_t place) {
    return sampled[place].outcome == RowResult::Outcome::kToken;
  };
  int32_t accepted = 0;
  while (accepted < num_drafts && is_token(accepted) &&
         sampled[accepted].token == tokens[first + accepted]) {
    ++accepted;
  }
  // Accepted drafts stand in the pool as they are. A place without a token leaves the pool as it
  // is: what a step in flight may read there is some valid id, and its result is dropped.
  if (is_token(accepted) && first + accepted < limits_.max_seq_len) {
    tokens[first + accepted] = sampled[accepted].token;
  }
  *result = std::move(sampled[0]);
  result->more.assign(std::make_move_iterator(sampled + 1),
                      std::make_move_iterator(sampled + 1 + accepted));
}

}  // namespace minisgl::engine
