// One model on several ranks (tensor parallelism): the share of each rank, as a function of the
// configuration alone.
//
// A rank is a device, or threads of the CPU, with weights, keys, values and states of its own. All
// ranks run the same steps with the same decoder; what differs is its configuration (RankConfig).
// Of attention a rank has consecutive query heads and the KV heads that they read. With more ranks
// than KV heads, several ranks have the same KV head. Of a feed-forward part, of each expert and of
// the vocabulary it has consecutive features, and of a mixer with a state consecutive heads and the
// groups that they read, or consecutive channels of a convolution. What mixes heads or features
// again (attention_output, down) is cut along its inputs, so that its products are parts of a sum
// over ranks. Of norms over all heads each rank has the weights of its heads, and mean squares are
// summed over ranks. Other norms, routers, the latents of latent attention and per-layer embeddings
// are whole on each rank: they are small, and each rank needs their results. So are the projections
// around experts on a latent.
#pragma once

#include <cstdint>

#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// Rank `index` of `count`.
struct Rank {
  int32_t index = 0;
  int32_t count = 1;

  bool is_first() const { return index == 0; }
  bool operator==(const Rank&) const = default;
};

inline constexpr int32_t kRanksMax = 64;

// kUsage, with the numbers that would divide the model, if `num_ranks` does not divide its heads;
// with the feature if the model has one that is not divided. REQUIRES 1 <= num_ranks <= kRanksMax.
Status CheckRanks(const ModelConfig& config, int32_t num_ranks);

// `config` with the sizes of a rank's share. All ranks have equally many heads; numbers of features
// may differ by what they are cut at multiples of. REQUIRES CheckRanks(config, rank.count).ok().
ModelConfig RankConfig(const ModelConfig& config, const Rank& rank);

}  // namespace minisgl
