// One forward pass over a whole text, for tests against references. No engine, no thread, and no
// cache that outlives the call.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/kv_storage.h"
#include "engine/rank_threads.h"
#include "engine/state_storage.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/decoder.h"

namespace minisgl::engine {
namespace {

constexpr int32_t kPageSize = 16;

// One row with pages 0, 1, 2, ..., so that slots equal positions.
BatchPlan WholePrompt(int32_t num_tokens) {
  BatchPlan plan;
  plan.positions.resize(static_cast<size_t>(num_tokens));
  std::iota(plan.positions.begin(), plan.positions.end(), 0);
  plan.slots.assign(plan.positions.begin(), plan.positions.end());
  plan.table_row = {0};
  plan.row_begin = {0, num_tokens};
  plan.kv_len = {num_tokens};
  plan.wants_token = {0};
  plan.num_drafts = {0};
  plan.prompt_len = {num_tokens};
  plan.sampling = {nullptr};
  return plan;
}

// Nothing on ranks after the first.
Result<std::vector<float>> LogitsOfRank(const ModelConfig& config, const Checkpoint& checkpoint,
                                        const WeightFormat& weight_format, const Rank& rank,
                                        Ops* ops, const std::vector<TokenId>& ids) {
  const auto num_tokens = static_cast<int32_t>(ids.size());
  const DecoderOptions options{.weight_format = weight_format,
                               .activation_dtype = ops->activation_dtype(),
                               .max_step_tokens = num_tokens,
                               .max_logit_rows = num_tokens,
                               .max_seq_len = std::max<int64_t>(num_tokens, config.max_seq_len),
                               .rank = rank};
  MINISGL_ASSIGN_OR_RETURN(auto decoder, Decoder::Load(config, checkpoint, options, ops));
  const ModelConfig own = RankConfig(config, rank);
  const int32_t num_pages = CeilDiv(num_tokens, kPageSize);
  MINISGL_ASSIGN_OR_RETURN(
      const KvStorage kv,
      KvStorage::Make(own, KvDType(options.activation_dtype, weight_format.dtype), num_pages,
                      kPageSize, ops));

  MINISGL_ASSIGN_OR_RETURN(const StateStorage states,
                           StateStorage::Make(own, /*num_slots=*/1, ops));
  const StateSpan spans[] = {{.begin = 0, .row_first = 0, .read = kZeroState, .write = 0},
                             {.begin = num_tokens, .row_first = 1, .read = 0, .write = 0}};
  const BatchPlan plan = WholePrompt(num_tokens);
  std::vector<int32_t> page_table(static_cast<size_t>(num_pages));
  std::iota(page_table.begin(), page_table.end(), 0);
  const float* logits = decoder->Forward({.num_tokens = num_tokens,
                                          .num_rows = 1,
                                          .token_ids = ids.data(),
                                          .positions = plan.positions.data(),
                                          .slots = plan.slots.data(),
                                          .table_row = plan.table_row.data(),
                                          .row_begin = plan.row_begin.data(),
                                          .kv_len = plan.kv_len.data(),
                                          .page_table = page_table.data(),
                                          .page_table_stride = num_pages,
                                          .kv = kv.layers(),
                                          .states = states.layers(),
                                          .state_segments = {.spans = spans, .count = 1},
                                          .logit_tokens = plan.positions.data(),
                                          .num_logit_tokens = num_tokens});
  if (!rank.is_first()) return std::vector<float>();
  return std::vector<float>(logits, logits + ids.size() * static_cast<size_t>(config.vocab_size));
}

Status CheckIds(const ModelConfig& config, const std::vector<TokenId>& ids) {
  if (ids.empty() || ids.size() > size_t{std::numeric_limits<int32_t>::max()}) {
    return BadInput("no token ids, or too many ({})", ids.size());
  }
  for (const TokenId id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return BadInput("token id {} is not in the vocabulary of {}", id, config.vocab_size);
    }
  }
  return Status();
}

}  // namespace
}  // namespace minisgl::engine

namespace minisgl {

Result<std::vector<float>> ComputeLogits(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& weight_format, Ops* ops,
                                         const std::vector<TokenId>& ids) {
  MINISGL_RETURN_IF_ERROR(engine::CheckIds(config, ids));
  return engine::LogitsOfRank(config, checkpoint, weight_format, Rank(), ops, ids);
}

Result<std::vector<float>> ComputeLogits(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& weight_format,
                                         const EngineRanks& ranks,
                                         const std::vector<TokenId>& ids) {
  MINISGL_RETURN_IF_ERROR(engine::CheckIds(config, ids));
  std::vector<Result<std::vector<float>>> logits(ranks.ops.size(), std::vector<float>());
  engine::RankThreads threads(ranks.rendezvous);
  threads.Run([&](int32_t index) {
    const auto at = static_cast<size_t>(index);
    logits[at] = engine::LogitsOfRank(config, checkpoint, weight_format,
                                      {index, threads.num_ranks()}, ranks.ops[at].get(), ids);
  });
  for (const auto& result : logits) MINISGL_RETURN_IF_ERROR(result.status());
  return std::move(logits[0]);
}

}  // namespace minisgl
