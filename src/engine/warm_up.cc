#include "engine/warm_up.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace minisgl::engine {
namespace {

// Tokens of the steps that extend: few, for attention in small tiles, and sizes in the middle and
// at the end of what one prompt has in most cases. A step of the last takes as long as one chunk of
// a prompt: 0.1 s for a model of 14 billion weights on an H100 (an estimate).
constexpr int32_t kExtendTokens[] = {2, 512, 2048};

// Drafts of the step that drafts.
constexpr int32_t kDrafts = 2;

// A step of `num_tokens` tokens of the padding row, all of them id 0, and with `wants_token` a
// place to sample.
std::shared_ptr<BatchPlan> PaddingPlan(int32_t num_tokens, int32_t padding_row, bool wants_token) {
  static const SamplingParams kGreedy;
  auto plan = std::make_shared<BatchPlan>();
  const auto count = static_cast<size_t>(num_tokens);
  plan->token_pool_writes = {
      {.table_row = padding_row, .first = 0, .count = num_tokens, .offset = 0}};
  plan->tokens.assign(count, 0);
  // The device computes both by itself, unless positions decide which keys a token sees.
  plan->positions.resize(count);
  std::iota(plan->positions.begin(), plan->positions.end(), 0);
  plan->slots.assign(count, 0);
  plan->table_row = {padding_row};
  plan->row_begin = {0, num_tokens};
  plan->kv_len = {num_tokens};
  plan->wants_token = {static_cast<uint8_t>(wants_token ? 1 : 0)};
  plan->num_drafts = {0};
  plan->prompt_len = {num_tokens};
  plan->sampling = {&kGreedy};
  return plan;
}

// The same with drafts behind its first token, which stands at place 1.
std::shared_ptr<BatchPlan> DraftPlan(int32_t padding_row) {
  auto plan = PaddingPlan(kDrafts + 1, padding_row, /*wants_token=*/true);
  for (int32_t& position : plan->positions) ++position;
  plan->kv_len = {kDrafts + 2};
  plan->num_drafts = {kDrafts};
  plan->prompt_len = {2};
  plan->makes_drafts = {1};
  return plan;
}

Status RunPlan(std::shared_ptr<BatchPlan> plan, bool adapters, DeviceStep* step,
               InFlightStep* in_flight, DeviceOps* ops) {
  if (step->drafter() != nullptr) plan->extras.hidden = {{.token = 0, .count = plan->num_tokens()}};
  in_flight->plan = std::move(plan);
  MINISGL_RETURN_IF_ERROR(step->Upload(in_flight, {.adapters = adapters}));
  step->RunDrafts(*in_flight);
  step->Run(*in_flight);
  step->Download(in_flight);
  step->FeedDrafter(in_flight);
  in_flight->plan.reset();
  return ops->Synchronize();
}

}  // namespace

Status WarmUp(int32_t decode_rows, DeviceStep* step, InFlightStep* in_flight, DeviceOps* ops) {
  const EngineLimits& limits = step->limits();
  const bool has_head = !limits.lacks_head;
  const int32_t most = std::min(limits.max_step_tokens, limits.max_seq_len - 1);
  for (const bool adapters : {false, true}) {
    if (adapters && step->adapters() == nullptr) break;
    if (has_head) {
      MINISGL_RETURN_IF_ERROR(step->Upload(in_flight, {.rows = decode_rows, .adapters = adapters}));
      step->Run(*in_flight);
      MINISGL_RETURN_IF_ERROR(ops->Synchronize());
    }
    int32_t last = 0;
    for (const int32_t num_tokens : kExtendTokens) {
      const int32_t tokens = std::min(num_tokens, most);
      if (tokens <= last) break;
      last = tokens;
      MINISGL_RETURN_IF_ERROR(RunPlan(PaddingPlan(tokens, limits.max_running_requests, has_head),
                                      adapters, step, in_flight, ops));
    }
  }
  if (step->drafter() != nullptr && kDrafts < most && kDrafts <= limits.max_step_drafts) {
    MINISGL_RETURN_IF_ERROR(
        RunPlan(DraftPlan(limits.max_running_requests), /*adapters=*/false, step, in_flight, ops));
  }
  return Status();
}

}  // namespace minisgl::engine
