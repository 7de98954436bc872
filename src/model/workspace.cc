// One list of arrays, used to allocate them and to count their bytes.
#include "model/workspace.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "model/rank_norms.h"

namespace minisgl::model {
namespace {

// An array of the list: its destination and its extents.
struct Floats {
  DeviceArray<float> Workspace::*array;
  uint64_t count, width;
};
struct Activations {
  ActivationArray Workspace::*array;
  uint64_t count, width;
};
struct Arrays {
  std::vector<Floats> floats;
  std::vector<Activations> activations;
  uint64_t choices = 0;  // T * K
  uint64_t indices = 0;  // T, if there are positions of three parts
  uint64_t types = 0;    // T, if tokens have types
};

// Saturating: an overflow is detected when bytes are counted.
uint64_t Times(uint64_t a, uint64_t b) { return CheckedMul(a, b).value_or(UINT64_MAX); }

// Whether the experts of some layers are on the host, and of some on the device.
struct ExpertPlaces {
  bool on_host = false, on_device = true;
};

void ListExperts(const ModelConfig& config, uint64_t tokens, ExpertPlaces places, Arrays* arrays) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  const auto chosen = static_cast<uint64_t>(experts.num_chosen);
  const auto width = static_cast<uint64_t>(experts.intermediate_size);
  arrays->choices = Times(tokens, chosen);
  arrays->floats.push_back(
      {&Workspace::router_logits, tokens, static_cast<uint64_t>(experts.num_experts)});
  arrays->floats.push_back({&Workspace::shares, tokens, chosen});
  if (experts.beside_dense || experts.latent_size > 0 || experts.scales_input || places.on_host) {
    arrays->floats.push_back({&Workspace::ones, tokens, experts.scales_input ? chosen : 1});
  }
  if (experts.shared_gate || experts.shared_half)
    arrays->floats.push_back({&Workspace::shared_share, tokens, 1});
  if (places.on_device) {
    arrays->activations.push_back(
        {&Workspace::expert_gate_up, arrays->choices, Times(config.gated ? 2 : 1, width)});
    arrays->activations.push_back({&Workspace::expert_gated, arrays->choices, width});
  }
  const auto latent = static_cast<uint64_t>(experts.latent_size);
  arrays->activations.push_back({&Workspace::expert_out,
                                 places.on_device ? arrays->choices : tokens,
                                 latent > 0 ? latent : static_cast<uint64_t>(config.hidden_size)});
  if (latent > 0) arrays->activations.push_back({&Workspace::latent, tokens, latent});
}

void ListStates(const ModelConfig& config, uint64_t tokens, Arrays* arrays) {
  if (!HasStates(config)) return;
  const StateConfig& states = config.states;
  const auto channels = static_cast<uint64_t>(states.conv_width);
  const bool is_gated_conv = states.num_heads == 0;
  arrays->activations.push_back(
      {&Workspace::state_in, tokens, Times(is_gated_conv ? 3 : 1, channels)});
  arrays->activations.push_back({&Workspace::state_conv, tokens, channels});
  if (is_gated_conv) return;
  const auto inner = static_cast<uint64_t>(states.inner_width());
  arrays->activations.push_back({&Workspace::state_gate, tokens, inner});
  arrays->activations.push_back({&Workspace::state_out, tokens, inner});
  arrays->floats.push_back(
      {&Workspace::state_scalars, tokens, Times(2, static_cast<uint64_t>(states.num_heads))});
}

// The rotary of the model whose positions have three parts; null: none.
const RopeConfig* SectionedRope(const ModelConfig& config) {
  const auto found = std::find_if(config.ropes.begin(), config.ropes.end(),
                                  [](const RopeConfig& rope) { return rope.has_sections(); });
  return found == config.ropes.end() ? nullptr : &*found;
}

bool HasParallelMixers(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
    return layer.mixer == Mixer::kAttentionAndMamba2;
  });
}

Arrays ListArrays(const ModelConfig& config, const DecoderOptions& options,
                  int64_t whole_vocab_size) {
  const auto tokens = static_cast<uint64_t>(options.max_step_tokens);
  const auto rows = static_cast<uint64_t>(options.max_logit_rows);
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  uint64_t qkv = 0, attention = 0;
  for (const LayerShape& shape : LayerShapes(config)) {
    const auto heads = static_cast<uint64_t>(shape.num_heads);
    const auto kv_heads = static_cast<uint64_t>(shape.num_kv_heads);
    const auto head_dim = static_cast<uint64_t>(shape.head_dim);
    const auto value_dim = static_cast<uint64_t>(shape.value_dim);
    const uint64_t stored_values = shape.values_in_keys ? 0 : value_dim;
    // sums of products of two 31-bit numbers: below 2^64
    qkv = std::max(qkv, heads * head_dim + kv_heads * (head_dim + stored_values));
    attention = std::max(attention, heads * value_dim);
  }
  const auto gated = static_cast<uint64_t>(GatedWidth(config));
  Arrays arrays;
  arrays.floats = {{&Workspace::residual, tokens, hidden},
                   {&Workspace::wanted_residual, rows, hidden}};
  if (!config.is_encoder) {
    arrays.floats.push_back({&Workspace::logits, rows, static_cast<uint64_t>(config.vocab_size)});
  }
  if (config.num_positions > 0 || config.num_token_types > 0 || config.adds_input_again) {
    arrays.floats.push_back({&Workspace::placed, tokens, hidden});
  }
  if (config.num_token_types > 0) arrays.types = tokens;
  if (config.prediction == PredictionLayer::kEagle) {
    arrays.floats.push_back({&Workspace::ones, tokens, 1});
  }
  if (config.prediction == PredictionLayer::kAssistant) {
    const auto width = static_cast<uint64_t>(config.draft_head.target_width);
    arrays.floats.push_back({&Workspace::target_embedding, tokens, width});
    arrays.floats.push_back(
        {&Workspace::cluster_scores, rows, static_cast<uint64_t>(config.draft_head.num_clusters)});
  }
  const auto rank = static_cast<uint64_t>(config.draft_head.transition_rank);
  const uint64_t transitions = rank == 0 ? 0 : uint64_t{kTransitionRows};
  if (transitions > 0) {
    arrays.floats.push_back({&Workspace::transition_floats, transitions, rank});
    arrays.floats.push_back(
        {&Workspace::transition_logits, transitions, static_cast<uint64_t>(whole_vocab_size)});
  }
  if (options.rank.count > 1 && (options.rank.is_first() || options.logits_on_all_ranks)) {
    arrays.floats.push_back(
        {&Workspace::all_logits, rows, static_cast<uint64_t>(whole_vocab_size)});
  }
  if (options.rank.count > 1 && NormalizesOverRanks(config)) {
    arrays.floats.push_back({&Workspace::mean_squares, kRankNormsMax, tokens});
  }
  arrays.activations = {{&Workspace::hidden, tokens, hidden},
                        {&Workspace::qkv, tokens, qkv},
                        {&Workspace::attention, tokens, attention},
                        {&Workspace::wanted_hidden, rows, hidden}};
  if (transitions > 0) {
    arrays.activations.push_back({&Workspace::transition_states, transitions, rank});
  }
  if (!options.kept_layers.empty()) {
    arrays.activations.push_back(
        {&Workspace::entering, Times(options.kept_layers.size(), tokens), hidden});
  }
  if (config.prediction == PredictionLayer::kEagle) {
    arrays.activations.push_back({&Workspace::state_qkv, tokens, qkv});
  }
  if (config.prediction == PredictionLayer::kAssistant) {
    const auto width = static_cast<uint64_t>(config.draft_head.target_width);
    arrays.activations.push_back({&Workspace::embedding_input, tokens, width});
    arrays.activations.push_back({&Workspace::target_state, rows, width});
  }
  if (gated > 0) {
    arrays.activations.push_back({&Workspace::gate_up, tokens, Times(config.gated ? 2 : 1, gated)});
    arrays.activations.push_back({&Workspace::gated, tokens, gated});
  }
  if (config.norm_placement == NormPlacement::kParallel || config.experts.beside_dense ||
      config.experts.latent_size > 0 || HasParallelMixers(config) || config.is_prediction_layer()) {
    arrays.activations.push_back({&Workspace::branch, tokens, hidden});
  }
  if (config.attention_gate) {
    arrays.activations.push_back({&Workspace::attention_gate, tokens, attention});
  }
  if (const LatentConfig& latent = config.latent; latent.rank > 0) {
    const auto head =
        static_cast<uint64_t>(std::max(latent.plain_dim + latent.rotary_dim, latent.value_dim));
    const auto heads = static_cast<uint64_t>(config.num_heads);
    arrays.activations.push_back({&Workspace::latent_heads, tokens, heads * head});
    if (latent.query_rank > 0) {
      arrays.activations.push_back(
          {&Workspace::query_latent, tokens, static_cast<uint64_t>(latent.query_rank)});
    }
  }
  ListExperts(config, tokens,
              {.on_host = options.num_host_layers > 0,
               .on_device = options.num_host_layers < CountExpertLayers(config)},
              &arrays);
  ListStates(config, tokens, &arrays);
  if (const RopeConfig* const rope = SectionedRope(config); rope != nullptr) {
    const auto half = static_cast<uint64_t>(rope->dim / 2);
    arrays.floats.push_back({&Workspace::mixed_cos, tokens, half});
    arrays.floats.push_back({&Workspace::mixed_sin, tokens, half});
    arrays.indices = tokens;
  }
  if (config.per_layer_width > 0) {
    const auto width = static_cast<uint64_t>(config.per_layer_width);
    const uint64_t all = Times(static_cast<uint64_t>(config.num_layers), width);
    arrays.floats.push_back({&Workspace::per_layer_sum, tokens, all});
    arrays.activations.push_back({&Workspace::per_layer, tokens, all});
    arrays.activations.push_back({&Workspace::per_layer_gate, tokens, width});
    arrays.activations.push_back({&Workspace::per_layer_gated, tokens, width});
  }
  return arrays;
}

Result<Workspace> TakeArrays(const Arrays& arrays, Ops* ops) {
  Workspace space;
  for (const auto& [array, count, width] : arrays.floats) {
    MINISGL_ASSIGN_OR_RETURN(space.*array, DeviceArray<float>::Make(ops, {count, width}));
  }
  for (const auto& [array, count, width] : arrays.activations) {
    MINISGL_ASSIGN_OR_RETURN(space.*array,
                             ActivationArray::Make(ops, ops->activation_dtype(), {count, width}));
  }
  if (arrays.choices > 0) {
    MINISGL_ASSIGN_OR_RETURN(space.experts, DeviceArray<int32_t>::Make(ops, {arrays.choices}));
  }
  return space;
}

Status FillOnes(const ModelConfig& config, int64_t num_tokens, const Workspace& space, Ops* ops) {
  const int64_t chosen = config.experts.scales_input ? config.experts.num_chosen : 1;
  const std::vector<float> ones(static_cast<size_t>(num_tokens * chosen), 1.0f);
  return ops->Upload(space.ones.data(), ones.data(), ones.size() * sizeof(float));
}

// The factors of each array's bytes.
std::vector<std::vector<uint64_t>> ProductsOf(const Arrays& arrays, DType activation_dtype) {
  std::vector<std::vector<uint64_t>> products = {{arrays.choices, sizeof(int32_t)},
                                                 {arrays.indices, sizeof(int32_t)},
                                                 {arrays.types, sizeof(int32_t)}};
  for (const auto& [array, count, width] : arrays.floats) {
    products.push_back({count, width, sizeof(float)});
  }
  for (const auto& [array, count, width] : arrays.activations) {
    products.push_back({count, width, DTypeBytes(activation_dtype)});
  }
  return products;
}

std::optional<uint64_t> SumOfProducts(const std::vector<std::vector<uint64_t>>& products) {
  std::optional<uint64_t> sum = 0;
  for (const auto& factors : products) {
    const auto product = CheckedProduct(factors);
    sum = sum && product ? CheckedAdd(*sum, *product) : std::nullopt;
  }
  return sum;
}

}  // namespace

int64_t GatedWidth(const ModelConfig& config) {
  int64_t width = config.experts.shared_intermediate_size;
  for (int32_t i = 0; i < std::ssize(config.layers); ++i) {
    const bool has_experts = config.layers[static_cast<size_t>(i)].has_experts;
    if (has_experts && !config.experts.beside_dense) continue;
    if (!config.layers[static_cast<size_t>(i)].has_feed_forward) continue;
    width = std::max(width, LayerShapeOf(config, i).intermediate_size);
  }
  return width;
}

Result<Workspace> MakeWorkspace(const ModelConfig& config, const DecoderOptions& options,
                                int64_t whole_vocab_size, Ops* ops) {
  const Arrays arrays = ListArrays(config, options, whole_vocab_size);
  MINISGL_ASSIGN_OR_RETURN(Workspace space, TakeArrays(arrays, ops));
  if (arrays.indices > 0) {
    std::vector<int32_t> indices(static_cast<size_t>(arrays.indices));
    std::iota(indices.begin(), indices.end(), 0);
    MINISGL_ASSIGN_OR_RETURN(space.token_indices, Upload<int32_t>(ops, indices));
  }
  if (arrays.types > 0) {
    const std::vector<int32_t> zeros(static_cast<size_t>(arrays.types));
    MINISGL_ASSIGN_OR_RETURN(space.zero_types, Upload<int32_t>(ops, zeros));
  }
  if (config.experts.beside_dense || config.experts.latent_size > 0 ||
      config.experts.scales_input || config.prediction == PredictionLayer::kEagle ||
      options.num_host_layers > 0) {
    MINISGL_RETURN_IF_ERROR(FillOnes(config, options.max_step_tokens, space, ops));
  }
  for (const RopeConfig& rope : config.ropes) {
    std::vector<float> cos, sin;
    MakeRotaryTables(rope, options.max_seq_len, &cos, &sin);
    RotaryTable table;
    MINISGL_ASSIGN_OR_RETURN(table.cos, Upload<float>(ops, cos));
    MINISGL_ASSIGN_OR_RETURN(table.sin, Upload<float>(ops, sin));
    space.rotary.push_back(std::move(table));
  }
  if (config.query_scale_beta != 0) {
    MINISGL_ASSIGN_OR_RETURN(
        space.query_scales,
        Upload<float>(ops, MakeQueryScales(config.query_scale_beta, config.query_scale_length,
                                           options.max_seq_len, config.query_scale_first)));
  }
  return space;
}

Result<Workspace> MakeExpertSpace(const ModelConfig& config, int64_t num_tokens, Ops* ops) {
  Arrays arrays;
  ListExperts(config, static_cast<uint64_t>(num_tokens), {.on_host = true}, &arrays);
  MINISGL_ASSIGN_OR_RETURN(Workspace space, TakeArrays(arrays, ops));
  MINISGL_RETURN_IF_ERROR(FillOnes(config, num_tokens, space, ops));
  return space;
}

std::optional<uint64_t> ExpertSpaceBytes(const ModelConfig& config, int64_t num_tokens) {
  Arrays arrays;
  ListExperts(config, static_cast<uint64_t>(num_tokens), {.on_host = true}, &arrays);
  return SumOfProducts(ProductsOf(arrays, DType::kF32));
}

std::optional<uint64_t> WorkspaceBytes(const ModelConfig& config, const DecoderOptions& options,
                                       int64_t whole_vocab_size) {
  const Arrays arrays = ListArrays(config, options, whole_vocab_size);
  const auto positions = static_cast<uint64_t>(options.max_seq_len);
  std::vector<std::vector<uint64_t>> products = ProductsOf(arrays, options.activation_dtype);
  for (const RopeConfig& rope : config.ropes) {
    products.push_back({positions, static_cast<uint64_t>(rope.dim), sizeof(float)});  // cos, sin
  }
  if (config.query_scale_beta != 0) products.push_back({positions, sizeof(float)});
  return SumOfProducts(products);
}

}  // namespace minisgl::model
