// The products of a decoder that adapters change. See adapter_pack.h.
#include <initializer_list>
#include <utility>

#include "model/adapter_fit.h"
#include "model/adapter_pack.h"
#include "model/tensor_arrangement.h"
#include "model/tensor_packer.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;

// Lists the products of one layer, or of the model outside its layers (-1), as model_weights.cc
// packs them.
class SiteList {
 public:
  SiteList(const ModelConfig& config, const Rank& rank, const Checkpoint& checkpoint, int32_t layer,
           Ops* ops, std::vector<AdapterSite>* sites)
      : config_(config),
        layer_(layer),
        packer_(config, checkpoint, layer, rank, DType::kF32, ops),
        sites_(sites) {}

  const Packer& packer() const { return packer_; }

  void Add(const Matrix& matrix, std::initializer_list<Role> roles, bool is_sum = false) {
    if (matrix.num_out == 0) return;
    AddSite({.matrix = &matrix, .layer = layer_, .parts = PartsOf(roles), .is_sum = is_sum});
  }
  void AddExperts(const ExpertMatrices& matrices, std::initializer_list<Role> roles,
                  bool is_sum = false) {
    if (matrices.num_experts == 0) return;
    AddSite({.experts = &matrices, .layer = layer_, .parts = PartsOf(roles), .is_sum = is_sum});
  }
  // Some stored rows of one matrix.
  void AddRows(const Matrix& matrix, Role role, std::vector<int64_t> rows) {
    const weights::TensorSpec* const spec = packer_.Find(role, 0);
    if (matrix.num_out == 0 || spec == nullptr) return;
    AddSite({.matrix = &matrix,
             .layer = layer_,
             .parts = {{role, role, std::move(rows), {0, SizesOf(config_, *spec).num_in}}}});
  }
  // One stored matrix makes two products of each head: it has the head's rows of keys, then its
  // rows of values. The product of keys reads its rows as columns.
  void AddLatentUp(const LatentWeights& latent) {
    if (!packer_.Has(Role::kLatentUp)) return;
    const SitePart all = PartOf(Role::kLatentUp, Role::kLatentUp);
    const int64_t num_keys = latent.absorbed_keys.num_in, num_values = latent.values.num_out;
    AdapterSite keys = {.experts = &latent.absorbed_keys, .layer = layer_, .by_heads = true};
    AdapterSite values = {.experts = &latent.values, .layer = layer_, .by_heads = true};
    for (int64_t head = 0; head < latent.values.num_experts; ++head) {
      const auto begin = all.outputs.begin() + head * (num_keys + num_values);
      const auto middle = begin + num_keys;
      keys.parts.push_back({Role::kLatentUp, Role::kLatentUp, {begin, middle}, all.inputs, true});
      values.parts.push_back(
          {Role::kLatentUp, Role::kLatentUp, {middle, middle + num_values}, all.inputs});
    }
    sites_->push_back(std::move(keys));
    sites_->push_back(std::move(values));
  }
  void AddTied(const Matrix& head) {
    AddSite({.matrix = &head, .layer = -1, .parts = {PartOf(Role::kHead, Role::kEmbedding)}});
  }

 private:
  SitePart PartOf(Role role, Role stored) const {
    const MatrixSizes sizes = SizesOf(config_, *packer_.Find(stored, 0));
    return {role, stored, packer_.OutputsOf(stored, sizes.num_out),
            packer_.InputsOf(stored, sizes.num_in)};
  }
  std::vector<SitePart> PartsOf(std::initializer_list<Role> roles) const {
    std::vector<SitePart> parts;
    for (const Role role : roles) {
      if (packer_.Has(role)) parts.push_back(PartOf(role, role));
    }
    return parts;
  }
  void AddSite(AdapterSite site) {
    int64_t num_out = 0;
    for (const SitePart& part : site.parts) num_out += std::ssize(part.outputs);
    MINISGL_CHECK(num_out == site.num_out(), "{} outputs of parts of a product with {}", num_out,
                  site.num_out());
    sites_->push_back(std::move(site));
  }

  const ModelConfig& config_;
  const int32_t layer_;
  const Packer packer_;
  std::vector<AdapterSite>* const sites_;
};

void AddAttention(const ModelConfig& config, const LayerWeights& layer, const Rank& rank,
                  SiteList* list) {
  if (config.latent.rank > 0) {
    list->Add(layer.qkv, {Role::kLatent});
    list->Add(layer.latent.query_down, {Role::kQueryDown});
    list->Add(layer.latent.query, {Role::kQueryUp, Role::kQuery});
    list->AddLatentUp(layer.latent);
  } else {
    list->Add(layer.qkv, {Role::kQkv, Role::kQuery, Role::kKey, Role::kValue});
  }
  if (config.gate_in_query) {
    const LayerShape& shape = list->packer().shape();
    const Span heads = HeadSpan(shape.num_heads, rank);
    const std::vector<int64_t> rows =
        RowsOfParts(shape.num_heads, int64_t{2} * shape.head_dim, shape.head_dim, shape.head_dim);
    list->AddRows(layer.attention_gate, Role::kQuery,
                  TakeSpans(rows, {{heads.first * shape.head_dim, heads.count * shape.head_dim}}));
  } else {
    list->Add(layer.attention_gate, {Role::kAttentionGate});
  }
  list->Add(layer.attention_output, {Role::kAttentionOutput}, /*is_sum=*/true);
}

void AddStateMixer(const ModelConfig& config, Mixer mixer, const StateWeights& state,
                   const Rank& rank, SiteList* list) {
  list->Add(state.output, {Role::kStateOutput}, /*is_sum=*/true);
  const StateConfig& states = config.states;
  if (mixer == Mixer::kShortConv) return list->Add(state.input, {Role::kStateInput});
  if (mixer == Mixer::kDeltaNet && !states.by_group) {
    list->Add(state.input,
              {Role::kStateInput, Role::kStateQuery, Role::kStateKey, Role::kStateValue});
    list->Add(state.gate, {Role::kStateGate});
    return list->Add(state.scalars, {Role::kStateDecay, Role::kStateGain});
  }
  const bool is_delta = mixer == Mixer::kDeltaNet;
  const StateParts parts = is_delta ? DeltaPartsByGroup(states) : Mamba2Parts(states);
  list->AddRows(state.input, Role::kStateInput,
                TakeSpans(parts.input, StateChannelSpans(config, mixer, rank)));
  list->AddRows(state.gate, Role::kStateInput, TakeSpans(parts.gate, StateGateSpans(states, rank)));
  list->AddRows(
      state.scalars, is_delta ? Role::kStateGainDecay : Role::kStateInput,
      TakeSpans(parts.scalars, StateScalarSpans(states, std::ssize(parts.scalars), rank)));
}

void AddFeedForward(const LayerWeights& layer, SiteList* list) {
  const ExpertWeights& experts = layer.experts;
  list->Add(experts.router, {Role::kRouter});
  list->Add(experts.shared_share, {Role::kSharedShare});
  list->AddExperts(experts.gate_up, {Role::kExpertGateUp, Role::kExpertGate, Role::kExpertUp});
  list->AddExperts(experts.down, {Role::kExpertDown}, /*is_sum=*/true);
  const FeedForwardWeights& dense = layer.feed_forward;
  if (list->packer().Has(Role::kSharedDown)) {
    list->Add(dense.gate_up, {Role::kSharedGateUp, Role::kSharedGate, Role::kSharedUp});
    list->Add(dense.down, {Role::kSharedDown}, /*is_sum=*/true);
  } else {
    list->Add(dense.gate_up, {Role::kGateUp, Role::kGate, Role::kUp});
    list->Add(dense.down, {Role::kDown}, /*is_sum=*/true);
  }
}

}  // namespace

std::vector<AdapterSite> AdapterSites(const ModelConfig& config, const Rank& rank,
                                      const Checkpoint& checkpoint, const ModelWeights& weights,
                                      Ops* ops) {
  std::vector<AdapterSite> sites;
  SiteList outside(config, rank, checkpoint, /*layer=*/-1, ops, &sites);
  if (!config.is_encoder && config.tie_word_embeddings) {
    outside.AddTied(weights.head);
  } else if (!config.is_encoder) {
    outside.Add(weights.head, {Role::kHead});
  }
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const Mixer mixer = config.layers[static_cast<size_t>(i)].mixer;
    SiteList list(config, rank, checkpoint, i, ops, &sites);
    if (HasAttention(mixer)) AddAttention(config, layer, rank, &list);
    if (HasState(mixer)) AddStateMixer(config, mixer, layer.state, rank, &list);
    AddFeedForward(layer, &list);
  }
  return sites;
}

}  // namespace minisgl::model
