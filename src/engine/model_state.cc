// See model_state.h.
#include "engine/model_state.h"

#include <utility>

#include "engine/step_places.h"
#include "minisgl/base/check.h"

namespace minisgl::engine {

Result<std::unique_ptr<ModelState>> ModelState::Make(const ModelList& models,
                                                     const ModelFiles& files,
                                                     const MemoryPlan& plan, const Rank& rank,
                                                     Ops* ops, std::shared_ptr<Ops> host_ops) {
  MINISGL_CHECK(plan.models.size() == models.size(), "a plan for {} of {} models",
                plan.models.size(), models.size());
  const EngineLimits& limits = plan.limits;
  std::unique_ptr<ModelState> state(
      new ModelState(RankConfig(models.target(), rank), limits.page_size, ops));
  DecoderOptions options{.weight_format = plan.weight_format,
                         .activation_dtype = ops->activation_dtype(),
                         .max_step_tokens = limits.max_step_tokens,
                         .max_logit_rows = MaxPlaces(limits),
                         .max_seq_len = limits.max_seq_len,
                         .rank = rank,
                         .logits_on_all_ranks = ops->GathersOnAllRanks(),
                         .kept_layers = models.KeptLayers(),
                         .takes_adapters = !models.adapters().empty(),
                         .adapters = models.adapters(),
                         .num_host_layers = plan.num_host_layers,
                         .host_ops = host_ops.get(),
                         .host_format = plan.host_format};
  MINISGL_CHECK(plan.num_host_layers == 0 || host_ops != nullptr, "experts on no host");
  state->host_ops_ = std::move(host_ops);
  state->kv_format_ = {KvDType(options.activation_dtype, plan.weight_format.dtype), plan.kv_kind};
  MINISGL_ASSIGN_OR_RETURN(state->decoder_, Decoder::Load(models.target(), files[0], options, ops));
  options.takes_adapters = false;  // a model beside the target runs without
  options.num_host_layers = 0;
  MINISGL_RETURN_IF_ERROR(state->LoadAdapters(models, files[0]));
  for (size_t i = 1; i < models.size(); ++i) {
    if (models[i].role() == ModelRole::kTower && !rank.is_first()) {
      state->beside_.emplace_back();
      continue;
    }
    options.weight_format = plan.models[i].weight_format;
    options.kept_layers.clear();
    options.rank = models[i].RankOf(rank);
    if (models[i].role() == ModelRole::kDrafter) {
      options.max_logit_rows =
          DrafterRows(*models[i].layers(), limits.max_running_requests, limits.max_step_drafts);
    }
    MINISGL_RETURN_IF_ERROR(state->LoadBeside(models[i], files[i], options));
  }
  MINISGL_ASSIGN_OR_RETURN(state->states_,
                           StateStorage::Make(state->config_, limits.num_state_slots, ops));
  return state;
}

Status ModelState::LoadAdapters(const ModelList& models, const Checkpoint& checkpoint) {
  // A device's slots are filled by DeviceAdapters.
  if (!models.loads_all_adapters() || ops_->HasAdapterSlots()) return Status();
  AdapterSlot slot = 0;
  for (const auto& adapter : models.adapters()) {
    MINISGL_ASSIGN_OR_RETURN(auto packed, decoder_->adapters()->Pack(adapter, checkpoint));
    decoder_->adapters()->Set(slot++, std::move(packed));
  }
  return Status();
}

Status ModelState::LoadBeside(const ListedModel& model, const Checkpoint& checkpoint,
                              const DecoderOptions& options) {
  auto loaded = model.Load(checkpoint, options, decoder_.get(), ops_);
  if (!loaded.ok()) return loaded.status().WithPrefix("the " + model.Title());
  if (model.role() == ModelRole::kTower) tower_ = dynamic_cast<Tower*>(loaded->get());
  if (model.role() == ModelRole::kDrafter && model.layers() != nullptr) {
    drafter_ = dynamic_cast<Decoder*>(loaded->get());
    drafter_layers_ = configs_in_pages_.size();
  }
  beside_.push_back(std::move(loaded).value());
  if (model.layers() != nullptr) {
    configs_in_pages_.push_back(RankConfig(*model.layers(), options.rank));
  }
  return Status();
}

Status ModelState::TakePages(int32_t num_pages, int32_t num_window_pages) {
  kv_ = KvStorage();
  MINISGL_ASSIGN_OR_RETURN(kv_, KvStorage::Make(config_, kv_format_, num_pages, page_size_, ops_,
                                                num_window_pages, configs_in_pages_));
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

ForwardInput ModelState::OfDrafter(ForwardInput input, const StepTables& tables) const {
  input.page_table = tables.page_table;
  input.page_table_stride = tables.page_table_stride;
  input.kv = kv_.beside(drafter_layers_);
  if (!drafter_->config().draft_head.kv_layers.empty()) {
    // The target's keys of layers with a window are in window pages, if there are some.
    input.window_page_table = tables.window_table;
    input.window_slots = input.slots;
  }
  return input;
}

void ModelState::RunDrafter(const ForwardInput& input, const StepTables& tables) {
  drafter_->RunLayers(OfDrafter(input, tables));
}

void ModelState::WriteDrafterKeys(const ForwardInput& input, const StepTables& tables) {
  drafter_->WriteKeys(OfDrafter(input, tables));
}

ConstActivationPtr ModelState::MixedStates(int64_t first, int64_t count) {
  const ModelConfig& head = drafter_->config();
  std::vector<ConstActivationPtr> parts;
  for (size_t part = 0; part < head.draft_head.target_layers.size(); ++part) {
    parts.push_back(decoder_->Entering(part).At(first * head.draft_head.target_width));
  }
  return drafter_->MixTargetStates(parts, count);
}

}  // namespace minisgl::engine
