// The sizes that the symbols of TensorSpec::dims stand for.
#include <limits>
#include <optional>
#include <string_view>

#include "minisgl/base/checked_math.h"
#include "weights/architectures.h"
#include "weights/state_tensors.h"

namespace minisgl::weights {
namespace {

std::optional<int64_t> Product(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::nullopt;
  const auto product = CheckedMul(static_cast<uint64_t>(a), static_cast<uint64_t>(b));
  if (!product || *product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*product);
}

}  // namespace

std::optional<int64_t> SymbolSize(const ModelConfig& config, std::string_view symbol,
                                  int32_t layer) {
  const LayerShape shape = LayerShapeOf(config, layer);
  if (symbol == "V") return config.vocab_size;
  if (symbol == "D") return config.hidden_size;
  if (symbol == "2D") return Product(2, config.hidden_size);
  if (symbol == "I") return shape.intermediate_size;
  if (symbol == "2I") return Product(2, shape.intermediate_size);
  if (symbol == "E") return shape.head_dim;
  if (symbol == "H") return shape.num_heads;
  if (symbol == "HKV") return shape.num_kv_heads;
  if (symbol == "H*E") return Product(shape.num_heads, shape.head_dim);
  if (symbol == "2H*E") return Product(int64_t{2} * shape.num_heads, shape.head_dim);
  if (symbol == "HKV*E") return Product(shape.num_kv_heads, shape.head_dim);
  if (symbol == "H*EV") return Product(shape.num_heads, shape.value_dim);
  if (symbol == "HKV*EV") return Product(shape.num_kv_heads, shape.value_dim);
  if (symbol == "(H+2HKV)*E") {
    return Product(int64_t{shape.num_heads} + 2 * int64_t{shape.num_kv_heads}, shape.head_dim);
  }
  const LatentConfig& latent = config.latent;
  if (symbol == "R") return latent.rank;
  if (symbol == "RQ") return latent.query_rank;
  if (symbol == "R+ER") return int64_t{latent.rank} + latent.rotary_dim;
  if (symbol == "H*(EN+ER)")
    return Product(shape.num_heads, int64_t{latent.plain_dim} + latent.rotary_dim);
  if (symbol == "H*(EN+EO)") {
    return Product(shape.num_heads, int64_t{latent.plain_dim} + latent.value_dim);
  }
  if (symbol == "H*EO") return Product(shape.num_heads, latent.value_dim);
  if (symbol == "H*R") return Product(shape.num_heads, latent.rank);
  if (symbol == "EN") return latent.plain_dim;
  if (symbol == "X") return config.experts.num_experts;
  if (symbol == "J") return config.experts.intermediate_size;
  if (symbol == "XD") return config.experts.latent_size;
  if (symbol == "2J") return Product(2, config.experts.intermediate_size);
  if (symbol == "NP") return config.num_positions;
  if (symbol == "NT") return config.num_token_types;
  if (symbol == "NB") return config.num_distances;
  if (symbol == "P") return config.per_layer_width;
  if (symbol == "L*P") return Product(config.num_layers, config.per_layer_width);
  if (symbol == "VP") return config.per_layer_vocab;
  if (symbol == "S") return config.experts.shared_intermediate_size;
  if (symbol == "2S") return Product(2, config.experts.shared_intermediate_size);
  if (symbol == "1") return 1;
  const DraftHeadConfig& head = config.draft_head;
  if (symbol == "VI") return head.num_ids;
  if (symbol == "B") return head.target_width;
  if (symbol == "2B") return Product(2, head.target_width);
  if (symbol == "CT") return head.num_clusters;
  if (symbol == "TR") return head.transition_rank;
  if (symbol == "DT") return Product(std::ssize(head.target_layers), head.target_width);
  return StateSize(config.states, symbol);
}

}  // namespace minisgl::weights
