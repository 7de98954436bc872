// See step_runner.h.
#include "engine/step_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/plan_check.h"
#include "engine/state_spans.h"
#include "engine/step_places.h"

namespace minisgl::engine {

StepRunner::StepRunner(EngineRanks ranks)
    : all_ops_(std::move(ranks.ops)),
      ops_(all_ops_[0].get()),
      threads_(std::move(ranks.rendezvous), std::move(ranks.cpus)) {
  MINISGL_CHECK(std::ssize(all_ops_) == threads_.num_ranks(), "operations of {} ranks of {}",
                all_ops_.size(), threads_.num_ranks());
}

Result<std::unique_ptr<StepRunner>> StepRunner::Make(const ModelList& models,
                                                     const ModelFiles& files,
                                                     const MemoryPlan& plan, EngineRanks ranks) {
  std::unique_ptr<StepRunner> runner(new StepRunner(std::move(ranks)));
  MINISGL_RETURN_IF_ERROR(runner->Load(models, files, plan));
  return runner;
}

// All ranks load at once.
Status StepRunner::Load(const ModelList& models, const ModelFiles& files, const MemoryPlan& plan) {
  const EngineLimits& limits = plan.limits;
  const int32_t num_ranks = threads_.num_ranks();
  std::vector<std::unique_ptr<ModelState>> states(static_cast<size_t>(num_ranks));
  std::vector<Status> failures(static_cast<size_t>(num_ranks));
  threads_.Run([&](int32_t index) {
    const auto at = static_cast<size_t>(index);
    auto state = ModelState::Make(models, files, plan, {index, num_ranks}, all_ops_[at].get());
    if (state.ok()) {
      states[at] = std::move(state).value();
      if (index > 0) {
        failures[at] = states[at]->TakePages(limits.num_pages, limits.num_window_pages);
      }
    } else {
      failures[at] = state.status();
    }
  });
  for (const Status& failure : failures) MINISGL_RETURN_IF_ERROR(failure);
  MINISGL_ASSIGN_OR_RETURN(state_,
                           StepState::Make(models.target(), std::move(states[0]), limits, ops_));
  Status taken;
  threads_.Run([&](int32_t index) {  // on its own thread, whose node has the memory
    if (index == 0) taken = state_->TakePages(limits.num_pages, limits.num_window_pages);
  });
  MINISGL_RETURN_IF_ERROR(taken);
  states.erase(states.begin());
  others_ = std::move(states);
  encoded_.emplace(state_->model().tower(), ops_);
  if (!models.loads_all_adapters()) {
    models_ = models;
    files_ = files;
  }
  MINISGL_RETURN_IF_ERROR(MakeDrafter(models, limits));
  MINISGL_ASSIGN_OR_RETURN(token_ids_, DeviceArray<TokenId>::Make(
                                           ops_, {static_cast<uint64_t>(limits.max_step_tokens)}));
  return Status();
}

std::unique_ptr<AdapterStore> StepRunner::MakeAdapterStore(const MakeStore& make) const {
  if (models_.loads_all_adapters()) return nullptr;
  const auto pack = [this](AdapterSlot adapter) -> Result<RankAdapters> {
    RankAdapters packed;
    for (const ModelState* model : models()) {
      MINISGL_ASSIGN_OR_RETURN(
          auto own,
          model->adapters()->Pack(models_.adapters()[static_cast<size_t>(adapter)], (*files_)[0]));
      packed.push_back(std::move(own));
    }
    return packed;
  };
  return make(static_cast<int32_t>(models_.adapters().size()), models_.max_adapters(), pack);
}

void StepRunner::SetAdapter(AdapterSlot adapter, const RankAdapters& packed) {
  const std::vector<const ModelState*> all = models();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank]->adapters()->Set(adapter, packed.empty() ? nullptr : packed[rank]);
  }
}

void StepRunner::OnRanks(const std::function<void(ModelState*, bool is_first)>& of) {
  if (others_.empty()) return of(&state_->model(), true);
  threads_.Run([&](int32_t index) {
    const bool is_first = index == 0;
    of(is_first ? &state_->model() : others_[static_cast<size_t>(index) - 1].get(), is_first);
  });
}

Status StepRunner::MakeDrafter(const ModelList& models, const EngineLimits& limits) {
  const ListedModel* const drafter = models.drafter();
  if (drafter == nullptr) return Status();
  TokenDrafter::Passes passes;
  passes.run_layers = [this](const ForwardInput& input) {
    OnRanks([&](ModelState* model, bool) { model->RunDrafter(input, state_->tables()); });
  };
  passes.logits = [this](const ForwardInput& input) {
    float* logits = nullptr;
    OnRanks([&](ModelState* model, bool is_first) {
      float* const own = model->drafter()->Logits(input);
      if (is_first) logits = own;
    });
    return logits;
  };
  passes.states = [this](const ForwardInput& input) {
    ConstActivationPtr states = nullptr;  // each rank has the same
    OnRanks([&](ModelState* model, bool is_first) {
      if (is_first) states = model->drafter()->States(input);
    });
    return states;
  };
  passes.cluster_scores = [this](const ForwardInput& input) {
    const float* scores = nullptr;
    OnRanks([&](ModelState* model, bool is_first) {
      if (is_first) scores = model->drafter()->ClusterScores(input);
    });
    return scores;
  };
  passes.add_transitions = [this](const int32_t* ids, int64_t count, float* logits) {
    OnRanks([&](ModelState* model, bool is_first) {
      if (is_first) model->drafter()->AddTransitions(ids, count, logits);
    });
  };
  passes.write_keys = [this](const ForwardInput& input) {
    OnRanks([&](ModelState* model, bool) { model->WriteDrafterKeys(input, state_->tables()); });
  };
  MINISGL_ASSIGN_OR_RETURN(drafter_,
                           TokenDrafter::Make(limits, *drafter->layers(), std::move(passes), ops_));
  return Status();
}

void StepRunner::TakeStates(const BatchPlan& plan) {
  if (drafter_->mixes_states()) return TakeMixedStates(plan);
  // In pieces, as the states of prompts that are pooled.
  const int32_t piece = MaxPlaces(limits());
  for (const HiddenSpan& span : plan.extras.hidden) {
    for (int32_t begin = 0; begin < span.count; begin += piece) {
      const int32_t first = span.token + begin, count = std::min(piece, span.count - begin);
      pooled_tokens_.resize(static_cast<size_t>(count));
      std::iota(pooled_tokens_.begin(), pooled_tokens_.end(), first);
      const ConstActivationPtr states =
          States({.logit_tokens = pooled_tokens_.data(), .num_logit_tokens = count});
      drafter_->TakeStates(states.f32(), first, count);
    }
  }
}

// Each rank has the states of whole layers, and the first one mixes them.
void StepRunner::TakeMixedStates(const BatchPlan& plan) {
  OnRanks([&](ModelState* model, bool is_first) {
    if (!is_first) return;
    for (const HiddenSpan& span : plan.extras.hidden) {
      drafter_->TakeStates(model->MixedStates(span.token, span.count).f32(), span.token,
                           span.count);
    }
  });
}

std::vector<const ModelState*> StepRunner::models() const {
  std::vector<const ModelState*> models = {&state_->model()};
  for (const auto& other : others_) models.push_back(other.get());
  return models;
}

void StepRunner::RunLayers(const ForwardInput& input) {
  if (others_.empty()) return state_->RunLayers(input);
  threads_.Run([&](int32_t index) {
    if (index == 0) return state_->RunLayers(input);
    others_[static_cast<size_t>(index) - 1]->RunLayers(input, state_->tables());
  });
}

float* StepRunner::Logits(const ForwardInput& input) {
  if (others_.empty()) return state_->Logits(input);
  float* logits = nullptr;
  threads_.Run([&](int32_t index) {
    if (index == 0) {
      logits = state_->Logits(input);
    } else {
      others_[static_cast<size_t>(index) - 1]->Logits(input);
    }
  });
  return logits;
}

// Each rank has the same states.
ConstActivationPtr StepRunner::States(const ForwardInput& input) {
  if (others_.empty()) return state_->States(input);
  ConstActivationPtr states = nullptr;
  threads_.Run([&](int32_t index) {
    if (index == 0) states = state_->States(input);
  });
  return states;
}

StepResult StepRunner::Run(const BatchPlan& plan, const Sources& sources) {
  const auto find_fault = kDebugBuild ? FindPlanShapeFault : FindPlanSizeFault;
  const std::string fault = find_fault(plan, limits());
  MINISGL_CHECK(fault.empty(), "step {}: {}", plan.step, fault);
  ApplyWrites(plan);
  if constexpr (kDebugBuild) {
    const std::string state_fault = FindPlanStateFault(plan, limits(), state_->tables());
    MINISGL_CHECK(state_fault.empty(), "step {}: {}", plan.step, state_fault);
  }
  if (drafter_ != nullptr) {
    drafter_->Propose(plan, state_->tables(), sources.guide);
    if (plan.guides_drafts()) sources.give_drafts(DraftsOfMasked(plan));
  }
  GatherTokenIds(plan);
  ListPlaces(plan);
  const auto num_places = static_cast<int32_t>(places_.token.size());
  ForwardInput input = {.num_tokens = plan.num_tokens(),
                        .num_rows = plan.num_rows(),
                        .token_ids = token_ids_.data(),
                        .positions = plan.positions.data(),
                        .slots = plan.slots.data(),
                        .table_row = plan.table_row.data(),
                        .row_begin = plan.row_begin.data(),
                        .kv_len = plan.kv_len.data(),
                        .window_slots = plan.window_slots.data(),
                        .state_segments = ListSegments(plan),
                        .adapters = plan.extras.adapters,
                        .step = ++num_steps_};
  StepResult result;
  result.status = TakePictures(plan, &input);
  if (!result.status.ok() || plan.num_rows() == 0) return result;
  whole_texts_.List(plan, state_->config(), &input);
  RunLayers(input);
  std::vector<RowResult> scored = Score(plan);
  std::vector<std::vector<float>> vectors = Pool(plan);
  if (drafter_ != nullptr && drafter_->wants_states()) TakeStates(plan);
  float* const logits =
      Logits({.logit_tokens = places_.token.data(), .num_logit_tokens = num_places});
  places_.masks.clear();
  if (plan.has_masks()) ListMasks(plan, sources.masks());
  if (num_places > 0) SamplePlaces(plan, logits);
  if (drafter_ != nullptr)
    drafter_->Feed(plan, state_->tables(), places_.num_accepted.data(), input.placed);
  const auto result_of = [&](int32_t place, const SamplingParams&) {
    return std::move(places_.results[static_cast<size_t>(place)]);
  };
  result.rows = MakeRowResults(plan, places_.num_accepted.data(), result_of);
  AddScored(plan, std::move(scored), &result.rows);
  AddVectors(plan, std::move(vectors), &result.rows);
  return result;
}

// Takes no memory: whatever fails later in the step, the tables are as the scheduler knows them.
void StepRunner::ApplyWrites(const BatchPlan& plan) {
  ApplyTableWrites(plan,
                   {.page_table_writes = plan.page_table_writes.data(),
                    .pages = plan.pages.data(),
                    .window_pages = plan.window_pages.data(),
                    .token_pool_writes = plan.token_pool_writes.data(),
                    .tokens = plan.tokens.data()},
                   state_->tables(), ApplyPlanWrites);
}

Status StepRunner::TakePictures(const BatchPlan& plan, ForwardInput* input) {
  const int beside_pictures = kWantsPooling | kWantsHidden | kHasAdapter;
  if ((plan.extras.parts() & ~beside_pictures) == 0) return Status();
  Status status;
  if (others_.empty()) {
    status = encoded_->Apply(plan.extras);
  } else {
    threads_.Run([&](int32_t index) {
      if (index == 0) status = encoded_->Apply(plan.extras);
    });
  }
  MINISGL_RETURN_IF_ERROR(status);
  MINISGL_RETURN_IF_ERROR(encoded_->Place(plan.extras, &placed_));
  input->placed = placed_;
  picture_tokens_.List(plan, state_->config(), input);
  return Status();
}

std::vector<std::vector<TokenId>> StepRunner::DraftsOfMasked(const BatchPlan& plan) const {
  const StepTables& tables = state_->tables();
  std::vector<std::vector<TokenId>> drafts;
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.masked(row) || !plan.makes_drafts_of(row)) continue;
    const TokenId* const end =
        tables.token_pool + plan.table_row[row] * tables.token_pool_stride + plan.kv_len[row];
    drafts.emplace_back(end - plan.num_drafts[row], end);
  }
  return drafts;
}

void StepRunner::GatherTokenIds(const BatchPlan& plan) {
  const StepTables& tables = state_->tables();
  TokenId* const ids = token_ids_.data();
  for (int row = 0; row < plan.num_rows(); ++row) {
    const TokenId* tokens = tables.token_pool + plan.table_row[row] * tables.token_pool_stride;
    for (int t = plan.row_begin[row]; t < plan.row_begin[row + 1]; ++t) {
      ids[t] = tokens[plan.positions[t]];
    }
  }
}

StateSegments StepRunner::ListSegments(const BatchPlan& plan) {
  spans_.resize(plan.state_segments.size() + 1);
  ListStateSpans(plan, spans_.data());
  MINISGL_CHECK(limits().num_state_slots == 0 || spans_.back().begin == plan.num_tokens(),
                "step {}: state segments of {} tokens for {}", plan.step, spans_.back().begin,
                plan.num_tokens());
  return {.spans = spans_.data(), .count = static_cast<int32_t>(plan.state_segments.size())};
}

void StepRunner::ListPlaces(const BatchPlan& plan) {
  const StepTables& tables = state_->tables();
  Places& places = places_;
  places.begin.resize(plan.table_row.size() + 1);
  places.num_accepted.resize(plan.table_row.size());
  places.token.clear();
  places.sampling.clear();
  places.history.clear();
  places.prompt_len.clear();
  places.history_len.clear();
  ForEachPlace(plan, places.begin.data(), [&](int32_t row, int32_t token, int32_t history_len) {
    places.token.push_back(token);
    places.sampling.push_back(plan.sampling[row]);
    places.history.push_back(tables.token_pool + plan.table_row[row] * tables.token_pool_stride);
    places.prompt_len.push_back(plan.prompt_len[row]);
    places.history_len.push_back(history_len);
  });
  places.results.resize(places.token.size());
  places.sampled.resize(places.token.size());
}

std::vector<RowResult> StepRunner::Score(const BatchPlan& plan) {
  std::vector<RowResult> results(plan.scored_ids.size());
  if (results.empty()) return results;
  ListScored(plan);
  const auto piece = static_cast<size_t>(MaxPlaces(limits()));
  for (size_t begin = 0; begin < results.size(); begin += piece) {
    const size_t count = std::min(piece, results.size() - begin);
    float* const logits = Logits({.logit_tokens = scored_.token.data() + begin,
                                  .num_logit_tokens = static_cast<int32_t>(count)});
    ops_->Sample({.logits = logits,
                  .num_rows = static_cast<int64_t>(count),
                  .vocab_size = limits().vocab_size,
                  .sampling = scored_.sampling.data() + begin,
                  .history = scored_.history.data() + begin,
                  .prompt_len = scored_.lengths.data() + begin,
                  .history_len = scored_.lengths.data() + begin,
                  .results = results.data() + begin,
                  .given = plan.scored_ids.data() + begin});
  }
  return results;
}

std::vector<std::vector<float>> StepRunner::Pool(const BatchPlan& plan) {
  std::vector<std::vector<float>> vectors;
  const int32_t piece = MaxPlaces(limits());
  int32_t row = 0;
  for (const PoolingSpan& span : plan.extras.pooling) {
    while (plan.row_begin[row + 1] <= span.token) ++row;
    const int32_t table_row = plan.table_row[row];
    if (span.begins) pooled_.Begin(table_row);
    for (int32_t begin = 0; begin < span.count; begin += piece) {
      const int32_t count = std::min(piece, span.count - begin);
      pooled_tokens_.resize(static_cast<size_t>(count));
      std::iota(pooled_tokens_.begin(), pooled_tokens_.end(), span.token + begin);
      const ConstActivationPtr states =
          States({.logit_tokens = pooled_tokens_.data(), .num_logit_tokens = count});
      pooled_.Add(table_row, span.pooling, states.f32(), count, state_->config().hidden_size,
                  std::clamp(span.num_skipped - begin, 0, count));
    }
    if (span.ends) vectors.push_back(pooled_.End(table_row, span.pooling));
  }
  return vectors;
}

void StepRunner::ListScored(const BatchPlan& plan) {
  Scored& scored = scored_;
  scored.of_row.resize(plan.table_row.size());  // before pointers to them are taken
  scored.token.clear();
  scored.sampling.clear();
  ForEachScored(plan, [&](int32_t row, int32_t token) {
    SamplingParams& sampling = scored.of_row[static_cast<size_t>(row)];
    sampling.num_logprobs = plan.sampling[row]->num_prompt_logprobs;
    scored.token.push_back(token);
    scored.sampling.push_back(&sampling);
  });
  scored.history.assign(scored.token.size(), nullptr);
  scored.lengths.assign(scored.token.size(), 0);
}

void StepRunner::ListMasks(const BatchPlan& plan, const StepMasks& masks) {
  const auto num_words = static_cast<size_t>(MaskWords(limits().vocab_size));
  places_.masks.assign(places_.token.size(), nullptr);
  size_t begin = 0;  // in masks.words
  for (int row = 0; row < plan.num_rows(); ++row) {
    if (!plan.masked(row)) continue;
    for (int32_t place = places_.begin[row]; place < places_.begin[row + 1]; ++place) {
      MINISGL_CHECK(begin + num_words <= masks.words.size(), "step {}: masks of {} words",
                    plan.step, masks.words.size());
      places_.masks[static_cast<size_t>(place)] = masks.words.data() + begin;
      begin += num_words;
    }
  }
}

// Samples all places before any draft is accepted, because a place's history holds the drafts
// before it.
void StepRunner::SamplePlaces(const BatchPlan& plan, float* logits) {
  const StepTables& tables = state_->tables();
  ops_->Sample({.logits = logits,
                .num_rows = std::ssize(places_.results),
                .vocab_size = limits().vocab_size,
                .sampling = places_.sampling.data(),
                .history = places_.history.data(),
                .prompt_len = places_.prompt_len.data(),
                .history_len = places_.history_len.data(),
                .results = places_.results.data(),
                .masks = places_.masks.empty() ? nullptr : places_.masks.data()});
  for (size_t place = 0; place < places_.results.size(); ++place) {
    const RowResult& result = places_.results[place];
    places_.sampled[place] = {.token = result.token,
                              .outcome = static_cast<int32_t>(result.outcome),
                              .logprob = result.logprob,
                              .num_ranks = 0};
  }
  AcceptTokens({.table_row = plan.table_row.data(),
                .kv_len = plan.kv_len.data(),
                .place_begin = places_.begin.data(),
                .num_rows = plan.num_rows(),
                .sampled = places_.sampled.data(),
                .token_pool = tables.token_pool,
                .token_pool_stride = tables.token_pool_stride,
                .num_accepted = places_.num_accepted.data()});
}

}  // namespace minisgl::engine
