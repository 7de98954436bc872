// See adapter_fit.h.
#include "model/adapter_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "minisgl/adapter_params.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/adapters.h"
#include "weights/gguf_adapter.h"

namespace minisgl::model {
namespace {

using Role = weights::TensorRole;
using weights::TensorSpec;

constexpr std::string_view kWeightEnding = ".weight";
constexpr std::string_view kBiasEnding = ".bias";
constexpr std::string_view kNestedEnding = ".base_layer";

// A name without what stands around the text model: a wrapper's parts, of which files of several
// versions of one model have different ones.
std::string_view WithoutWrappers(std::string_view name) {
  constexpr std::array<std::string_view, 4> kWrappers = {"model.", "language_model.", "text_model.",
                                                         "transformer."};
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view wrapper : kWrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      found = true;
    }
  }
  return name;
}

void Replace(std::string_view from, std::string_view to, std::string* name) {
  const size_t at = name->find(from);
  if (at != std::string::npos) name->replace(at, from.size(), to);
}

// One name for what versions of the reference call differently.
std::string Plain(std::string_view module) {
  std::string name(WithoutWrappers(module));
  Replace("block_sparse_moe.", "mlp.", &name);
  if (name.find(".experts.") != std::string::npos) {
    for (const auto& [from, to] :
         {std::pair{".w1", ".gate_proj"}, {".w3", ".up_proj"}, {".w2", ".down_proj"}}) {
      if (name.ends_with(from)) Replace(from, to, &name);
    }
  }
  return name;
}

// Roles of matrices beside which a product of low rank is computed.
bool IsAdapted(Role role) {
  switch (role) {
    case Role::kQkv:
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kQueryDown:
    case Role::kQueryUp:
    case Role::kLatent:
    case Role::kLatentUp:
    case Role::kAttentionOutput:
    case Role::kAttentionGate:
    case Role::kGateUp:
    case Role::kGate:
    case Role::kUp:
    case Role::kDown:
    case Role::kRouter:
    case Role::kExpertGateUp:
    case Role::kExpertGate:
    case Role::kExpertUp:
    case Role::kExpertDown:
    case Role::kSharedGateUp:
    case Role::kSharedGate:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kSharedShare:
    case Role::kStateInput:
    case Role::kStateQuery:
    case Role::kStateKey:
    case Role::kStateValue:
    case Role::kStateGate:
    case Role::kStateDecay:
    case Role::kStateGain:
    case Role::kStateGainDecay:
    case Role::kStateOutput:
    case Role::kHead:
    case Role::kEmbedding:
      return true;
    default:
      return false;
  }
}

class Fitter {
 public:
  Fitter(const ModelConfig& config, const Adapter& adapter)
      : config_(config), dir_(Visible(adapter.dir, 400)), gguf_(adapter.gguf_architecture) {
    List(weights::ModelTensors(config));
    if (config.tie_word_embeddings && !config.is_encoder) {
      Add({.role = Role::kHead, .name = weights::HeadNamesOf(config).head, .dims = {"V", "D"}});
    }
    for (int32_t layer = 0; layer < config.num_layers; ++layer) {
      List(weights::LayerTensors(config, layer));
    }
  }

  Result<FittedChanges> Run(const std::vector<AdapterChange>& changes) {
    for (const AdapterChange& change : changes) {
      MINISGL_RETURN_IF_ERROR(Fit(change));
    }
    return std::move(fitted_);
  }

  // See LackedModules.
  std::vector<std::string> Lacked(const Adapter& adapter) const {
    std::set<std::string> changed;
    for (const AdapterChange& change : adapter.changes) changed.insert(Plain(change.module));
    std::vector<std::string> targets, lacked;
    for (const std::string& target : adapter.targets) targets.push_back(Plain(target));
    for (const auto& [name, spec] : modules_) {
      // Experts and what chooses them are parameters in most versions, which names do not fit.
      const bool is_linear = IsAdapted(spec.role) && !OfExpert(spec.role) && spec.layer >= 0 &&
                             spec.role != Role::kRouter && spec.role != Role::kSharedShare;
      if (!is_linear || changed.contains(name)) continue;
      const auto is_it = [&](const std::string& target) {
        return name == target || name.ends_with("." + target);
      };
      if (std::any_of(targets.begin(), targets.end(), is_it)) lacked.push_back(name);
    }
    return lacked;
  }

 private:
  void List(std::vector<TensorSpec> specs) {
    for (TensorSpec& spec : specs) Add(std::move(spec));
  }

  // Tensors that are neither a matrix nor a bias are kept to be named in errors.
  void Add(TensorSpec spec) {
    if (!gguf_.empty()) {
      std::string module = weights::GgufModuleOf(gguf_, spec);
      if (!module.empty()) modules_.emplace(std::move(module), std::move(spec));
      return;
    }
    std::string_view name = spec.name;
    if (name.ends_with(kBiasEnding)) {
      name.remove_suffix(kBiasEnding.size());
      biases_.insert(Plain(name));
      return;
    }
    if (name.ends_with(kWeightEnding)) name.remove_suffix(kWeightEnding.size());
    modules_.emplace(Plain(name), std::move(spec));
  }

  Status Fails(const AdapterChange& change, std::string_view what) const {
    return BadInput("{}: module \"{}\": {}", dir_, Visible(change.module, 200), what);
  }

  Status Fit(const AdapterChange& change) {
    const std::string name = gguf_.empty() ? Plain(change.module) : change.module;
    if (!gguf_.empty() && change.rank_of_expert > 0) return FitStoredExperts(change);
    if (change.rank_of_expert > 0 && !modules_.contains(name)) return FitExperts(change, name);
    const auto [first, last] = modules_.equal_range(name);
    if (first == last) {
      return Fails(change, fmt::format("{} has no product or embedding of this name, which the "
                                       "adapter changes; it is for another model",
                                       config_.architecture));
    }
    for (auto found = first; found != last; ++found) {
      MINISGL_RETURN_IF_ERROR(FitTo(change, found->second, biases_.contains(name)));
    }
    return Status();
  }

  Status FitTo(const AdapterChange& change, const TensorSpec& spec, bool has_bias) {
    const bool is_embedding = spec.role == Role::kEmbedding;
    if (!IsAdapted(spec.role) || (is_embedding && config_.is_encoder)) {
      return Fails(change, "an adapter of such a module is not supported");
    }
    const MatrixSizes sizes = SizesOf(config_, spec);
    if (is_embedding != change.is_embedding && change.is_low_rank()) {
      return Fails(change, is_embedding ? "low-rank matrices of a product for an embedding"
                                        : "low-rank matrices of an embedding for a product");
    }
    if (change.is_low_rank()) {
      MINISGL_RETURN_IF_ERROR(CheckShape(
          change, "lora_A", change.a, {change.rank, is_embedding ? sizes.num_out : sizes.num_in}));
      MINISGL_RETURN_IF_ERROR(CheckShape(
          change, "lora_B", change.b, {is_embedding ? sizes.num_in : sizes.num_out, change.rank}));
    }
    MINISGL_RETURN_IF_ERROR(CheckOthers(change, sizes, has_bias));
    const bool is_else = change.magnitude.data != nullptr || change.weight.data != nullptr ||
                         change.b_bias.data != nullptr || change.bias.data != nullptr;
    if (spec.role == Role::kLatentUp && is_else) {
      return Fails(change, "DoRA, a bias or whole weights of it are not supported");
    }
    const FittedKey key = {spec.layer, spec.role, spec.index};
    FittedChange fitted = {.change = &change};
    if (!gguf_.empty()) {
      auto rows = weights::GgufRowsOf(gguf_, config_, spec, sizes.num_out);
      if (!rows)
        return Fails(change, "an adapter of such a tensor of a GGUF file is not supported");
      if (!rows->empty()) {
        fitted.rows = std::make_shared<const std::vector<int64_t>>(*std::move(rows));
      }
    }
    if (!fitted_.emplace(key, fitted).second) {
      return Fails(change, "another module of the adapter is the same one of the model");
    }
    return Status();
  }

  Status CheckShape(const AdapterChange& change, const char* what, const TensorView& tensor,
                    const std::vector<int64_t>& shape) const {
    if (tensor.data == nullptr || tensor.shape == shape) return Status();
    return Fails(change, fmt::format("{} has shape {}; {} is needed", what,
                                     ShapeToString(tensor.shape), ShapeToString(shape)));
  }

  Status CheckOthers(const AdapterChange& change, const MatrixSizes& sizes, bool has_bias) const {
    const TensorView& weight = change.weight;
    const std::vector<int64_t> whole = {sizes.num_out, sizes.num_in};
    if (weight.data != nullptr && weight.shape[1] == sizes.num_in &&
        weight.shape[0] > sizes.num_out && sizes.num_out == config_.vocab_size) {
      return Fails(change, fmt::format("it has {} rows, and the vocabulary {} tokens: tokens that "
                                       "an adapter adds are not supported",
                                       weight.shape[0], sizes.num_out));
    }
    MINISGL_RETURN_IF_ERROR(CheckShape(change, "the whole module", weight, whole));
    if (change.bias.data != nullptr && !has_bias) {
      return Fails(change, "the adapter has a bias for it, and the model has none");
    }
    MINISGL_RETURN_IF_ERROR(CheckShape(change, "the bias", change.bias, {sizes.num_out}));
    if (change.token_rows.data == nullptr) return Status();
    MINISGL_RETURN_IF_ERROR(CheckShape(change, "the rows of trained tokens", change.token_rows,
                                       {std::ssize(change.tokens), sizes.num_in}));
    for (const TokenId id : change.tokens) {
      if (id < sizes.num_out) continue;
      return Fails(change, fmt::format("it has a row for token {}, and the vocabulary {} tokens",
                                       id, sizes.num_out));
    }
    return Status();
  }

  // A parameter with the matrices of all experts of a layer, whichever way the model's files hold
  // them.
  Status FitExperts(const AdapterChange& change, std::string name) {
    while (name.ends_with(kNestedEnding)) name.resize(name.size() - kNestedEnding.size());
    // The layer, by a tensor of any of its experts.
    const auto found = std::find_if(modules_.begin(), modules_.end(), [&](const auto& one) {
      return one.first.starts_with(name + ".") && OfExpert(one.second.role);
    });
    if (found == modules_.end()) {
      return Fails(change, fmt::format("{} has no experts there", config_.architecture));
    }
    const ExpertsConfig& experts = config_.experts;
    const int64_t width = experts.latent_size > 0 ? experts.latent_size : config_.hidden_size;
    const int64_t inner = experts.intermediate_size, count = experts.num_experts;
    const int64_t rank = change.rank_of_expert * count;
    const int64_t num_out = change.b.shape[0], num_in = change.a.shape[1];
    const int64_t inputs = config_.gated ? 2 * inner : inner;
    const bool is_down = num_out == width && num_in == inner;
    if (change.rank != rank || (!is_down && (num_out != inputs || num_in != width))) {
      return Fails(change,
                   fmt::format("lora_A has shape {} and lora_B {}; {} and {}, or {} and {}, are "
                               "needed",
                               ShapeToString(change.a.shape), ShapeToString(change.b.shape),
                               ShapeToString({rank, width}), ShapeToString({inputs, rank}),
                               ShapeToString({rank, inner}), ShapeToString({width, rank})));
    }
    const bool is_else = change.bias.data != nullptr || change.b_bias.data != nullptr ||
                         change.weight.data != nullptr;
    if (is_else) return Fails(change, "a bias or whole weights of experts are not supported");
    return AddExperts(change, found->second.layer, is_down);
  }

  // A tensor with one matrix of each expert, of a GGUF file.
  Status FitStoredExperts(const AdapterChange& change) {
    const auto [first, last] = modules_.equal_range(change.module);
    const int64_t count = config_.experts.num_experts, rank = change.rank_of_expert;
    if (first == last || count != std::distance(first, last) || !OfExpert(first->second.role)) {
      return Fails(change, fmt::format("{} has no experts there", config_.architecture));
    }
    for (auto found = first; found != last; ++found) {
      const TensorSpec& spec = found->second;
      const MatrixSizes sizes = SizesOf(config_, spec);
      MINISGL_RETURN_IF_ERROR(CheckShape(change, "lora_a", change.a, {count * rank, sizes.num_in}));
      MINISGL_RETURN_IF_ERROR(
          CheckShape(change, "lora_b", change.b, {sizes.num_out, count * rank}));
      const FittedChange fitted = {&change, spec.index, count};
      fitted_.emplace(FittedKey(spec.layer, spec.role, spec.index), fitted);
    }
    return Status();
  }

  static bool OfExpert(Role role) {
    return role == Role::kExpertGateUp || role == Role::kExpertGate || role == Role::kExpertUp ||
           role == Role::kExpertDown;
  }

  Status AddExperts(const AdapterChange& change, int32_t layer, bool is_down) {
    const ExpertsConfig& experts = config_.experts;
    const bool is_fused = !is_down && HasFusedExperts(layer);
    const auto add = [&](Role role, int32_t expert, int64_t first_out) {
      const FittedChange fitted = {&change, expert, experts.num_experts, first_out};
      return fitted_.emplace(FittedKey(layer, role, expert), fitted).second;
    };
    bool is_new = true;
    for (int32_t expert = 0; expert < experts.num_experts; ++expert) {
      if (is_down) {
        is_new &= add(Role::kExpertDown, expert, 0);
      } else if (is_fused) {
        is_new &= add(Role::kExpertGateUp, expert, 0);
      } else {
        if (config_.gated) is_new &= add(Role::kExpertGate, expert, 0);
        is_new &= add(Role::kExpertUp, expert, config_.gated ? experts.intermediate_size : 0);
      }
    }
    return is_new ? Status()
                  : Fails(change, "another module of the adapter is of the same experts");
  }

  bool HasFusedExperts(int32_t layer) const {
    return std::any_of(modules_.begin(), modules_.end(), [&](const auto& one) {
      return one.second.layer == layer && one.second.role == Role::kExpertGateUp;
    });
  }

  const ModelConfig& config_;
  const std::string dir_;
  const std::string gguf_;  // Adapter::gguf_architecture
  std::multimap<std::string, TensorSpec> modules_;
  std::set<std::string> biases_;
  FittedChanges fitted_;
};

}  // namespace

MatrixSizes SizesOf(const ModelConfig& config, const TensorSpec& spec) {
  const auto size = [&](size_t from_end) {
    if (spec.dims.size() < from_end) return int64_t{0};
    const std::string& symbol = spec.dims[spec.dims.size() - from_end];
    return weights::SymbolSize(config, symbol, spec.layer).value_or(0);
  };
  MatrixSizes sizes = {size(2), size(1)};
  using enum weights::TensorOrder;
  if (spec.order == kInputsFirst || spec.order == kInputsFirstInterleaved) {
    std::swap(sizes.num_out, sizes.num_in);
  }
  return sizes;
}

Result<FittedChanges> FitAdapter(const ModelConfig& config, const Adapter& adapter) {
  return Fitter(config, adapter).Run(adapter.changes);
}

}  // namespace minisgl::model

namespace minisgl {

Status CheckAdapterFits(const ModelConfig& config, const Adapter& adapter) {
  return model::FitAdapter(config, adapter).status();
}

std::vector<std::string> LackedModules(const ModelConfig& config, const Adapter& adapter) {
  if (adapter.targets.empty()) return {};
  return model::Fitter(config, adapter).Lacked(adapter);
}

uint64_t AdapterBytes(const ModelConfig& config, const Adapter& adapter) {
  uint64_t bytes = 0;
  const auto floats = [&](uint64_t count) { bytes += count * sizeof(float); };
  for (const AdapterChange& change : adapter.changes) {
    // Two products may have a module's outputs, each with its own A (gate_in_query).
    const bool has_heads = config.latent.rank > 0;
    const uint64_t products = config.gate_in_query || has_heads ? 2 : 1;
    const auto count_of = [](const TensorView& tensor) {
      return tensor.data == nullptr ? 0 : static_cast<uint64_t>(tensor.num_elements());
    };
    floats(products * (count_of(change.a) + count_of(change.b)));
    floats((products + (has_heads ? static_cast<uint64_t>(config.num_heads) : 0)) *
           static_cast<uint64_t>(change.rank) * kLowRankTile);
    floats(2 * (count_of(change.magnitude) + count_of(change.bias) + count_of(change.b_bias)));
    floats(count_of(change.weight) + count_of(change.token_rows));
    if (change.token_rows.data != nullptr) floats(static_cast<uint64_t>(config.vocab_size));
  }
  return bytes;
}

AdapterSlotNeeds SlotNeedsOf(const ModelConfig& config, const Adapter& adapter,
                             int64_t max_step_tokens, int64_t max_logit_rows) {
  // Products of one layer that several modules share, and the head of a slot.
  constexpr int64_t kJoined = 4, kSitesOfLayer = 16;
  int64_t widest = 0;  // outputs of such a product
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const LayerShape shape = LayerShapeOf(config, i);
    const int64_t heads = int64_t{2} * shape.num_heads + int64_t{2} * shape.num_kv_heads;
    widest = std::max({widest, heads * std::max(shape.head_dim, shape.value_dim),
                       2 * config.intermediate_size, 2 * config.experts.intermediate_size,
                       kJoined * config.hidden_size});
  }
  const int64_t heads = config.latent.rank > 0 ? int64_t{2} * config.num_heads : 0;
  const int64_t experts = 2 * config.experts.num_experts;
  const auto products =
      static_cast<uint64_t>((config.num_layers + 1) * (kSitesOfLayer + experts + heads) + 2);
  AdapterSlotNeeds needs = {.slot_bytes = AdapterBytes(config, adapter) +
                                          products * sizeof(SlotProduct) + sizeof(SlotEmbedding)};
  int64_t rank = 0, rank_of_expert = 0;
  uint64_t of_head = 0;
  for (const AdapterChange& change : adapter.changes) {
    constexpr uint64_t kPlaces = 16 * 16;  // arrays that are rounded up, and their entries
    const auto parts =
        static_cast<uint64_t>(std::max<int64_t>(change.rank_of_expert > 0 ? experts : heads, 1));
    needs.slot_bytes += parts * (kPlaces + 2 * sizeof(SlotPart) + sizeof(SlotWhole));
    const bool has_floats = change.magnitude.data != nullptr || change.bias.data != nullptr ||
                            change.b_bias.data != nullptr || change.weight.data != nullptr;
    int64_t outputs = widest;
    for (const TensorView* const view :
         {&change.magnitude, &change.bias, &change.b_bias, &change.weight}) {
      if (view->data != nullptr) outputs = std::max(outputs, view->shape[0]);
    }
    if (has_floats) needs.slot_bytes += parts * 2 * sizeof(float) * static_cast<uint64_t>(outputs);
    // Rows of single tokens may be outputs of the head, too: an A, a B and a part of each.
    if (const auto tokens = static_cast<uint64_t>(change.tokens.size()); tokens > 0) {
      needs.slot_bytes += sizeof(float) * (static_cast<uint64_t>(change.token_rows.num_elements()) +
                                           2 * static_cast<uint64_t>(config.vocab_size)) +
                          tokens * (sizeof(SlotPart) + 2 * kLowRankTile * sizeof(float));
      of_head = std::max(of_head, tokens);
    }
    if (change.rank_of_expert > 0) {
      rank_of_expert = std::max(rank_of_expert, change.rank_of_expert);
    } else {
      rank = std::max(rank, change.rank);
    }
  }
  const auto tokens = static_cast<uint64_t>(max_step_tokens);
  const auto chosen = static_cast<uint64_t>(std::max<int64_t>(config.experts.num_chosen, 1));
  // An adapter may name each expert's modules.
  const uint64_t of_experts =
      experts == 0 ? 0 : chosen * 2 * static_cast<uint64_t>(std::max(rank, rank_of_expert));
  needs.inner_floats = std::max(
      {tokens * static_cast<uint64_t>(std::max(kJoined, heads / 2) * rank), tokens * of_experts,
       static_cast<uint64_t>(max_logit_rows) * std::max(of_head, static_cast<uint64_t>(rank))});
  return needs;
}

std::vector<AdaptedKind> AdaptedKinds(const Adapter& adapter) {
  std::map<std::string, AdaptedKind> kinds;
  for (const AdapterChange& change : adapter.changes) {
    // Numbers between dots are those of layers and experts.
    std::string name;
    std::string_view rest = model::WithoutWrappers(change.module);
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
      if (!is_number && part != "layers" && part != "blk")
        name += fmt::format("{}{}", name.empty() ? "" : ".", part);
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    }
    AdaptedKind& kind = kinds[name];
    kind.name = name;
    const int64_t rank = change.rank_of_expert > 0 ? change.rank_of_expert : change.rank;
    kind.rank_min = kind.num_modules == 0 ? rank : std::min(kind.rank_min, rank);
    kind.rank_max = std::max(kind.rank_max, rank);
    ++kind.num_modules;
    kind.has_magnitude |= change.magnitude.data != nullptr;
    kind.has_bias |= change.bias.data != nullptr || change.b_bias.data != nullptr;
    kind.is_whole |= change.weight.data != nullptr;
    kind.has_tokens |= change.token_rows.data != nullptr;
  }
  std::vector<AdaptedKind> list;
  for (auto& [name, kind] : kinds) list.push_back(std::move(kind));
  return list;
}

}  // namespace minisgl
