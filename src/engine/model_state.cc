// See model_state.h.
#include "engine/model_state.h"

#include "engine/step_places.h"

namespace minisgl::engine {

Result<std::unique_ptr<ModelState>> ModelState::Make(const ModelConfig& config,
                                                     const Checkpoint& checkpoint,
                                                     const WeightFormat& weight_format,
                                                     const EngineLimits& limits, const Rank& rank,
                                                     Ops* ops) {
  std::unique_ptr<ModelState> state(
      new ModelState(RankConfig(config, rank), limits.page_size, ops));
  const DecoderOptions options{.weight_format = weight_format,
                               .activation_dtype = ops->activation_dtype(),
                               .max_step_tokens = limits.max_step_tokens,
                               .max_logit_rows = MaxPlaces(limits),
                               .max_seq_len = limits.max_seq_len,
                               .rank = rank,
                               .logits_on_all_ranks = ops->GathersOnAllRanks()};
  state->kv_dtype_ = KvDType(options.activation_dtype, weight_format.dtype);
  MINISGL_ASSIGN_OR_RETURN(state->decoder_, Decoder::Load(config, checkpoint, options, ops));
  MINISGL_ASSIGN_OR_RETURN(state->states_,
                           StateStorage::Make(state->config_, limits.num_state_slots, ops));
  return state;
}

Status ModelState::TakePages(int32_t num_pages, int32_t num_window_pages) {
  kv_ = KvStorage();
  MINISGL_ASSIGN_OR_RETURN(
      kv_, KvStorage::Make(config_, kv_dtype_, num_pages, page_size_, ops_, num_window_pages));
  return Status();
}

void ModelState::RunLayers(ForwardInput input, const StepTables& tables) {
  input.page_table = tables.page_table;
  input.page_table_stride = tables.page_table_stride;
  input.window_page_table = tables.window_table;
  input.kv = kv_.layers();
  input.states = states_.layers();
  decoder_->RunLayers(input);
}

}  // namespace minisgl::engine
