// See adapted_products.h.
#include "model/adapted_products.h"

#include <utility>

namespace minisgl::model {

AdaptedProducts::AdaptedProducts(const WholeModel& whole, const Rank& rank,
                                 const ModelWeights& weights, Ops* ops)
    : config_(whole.config),
      rank_(rank),
      device_ops_(ops),
      adapter_ops_(ops, rank, AdapterSites(config_, rank, whole.checkpoint, weights, ops),
                   &weights.embedding) {}

Result<std::shared_ptr<const PackedAdapter>> AdaptedProducts::Pack(
    std::shared_ptr<const Adapter> adapter, const Checkpoint& checkpoint) const {
  return PackAdapter(config_, rank_, checkpoint, adapter_ops_.sites(), std::move(adapter),
                     device_ops_);
}

void AdaptedProducts::Set(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter) {
  adapter_ops_.SetAdapter(slot, std::move(adapter));
}

std::unique_ptr<AdaptedProducts> MakeAdapters(const WholeModel& whole,
                                              const DecoderOptions& options,
                                              const ModelWeights& weights, Ops* ops) {
  if (!options.takes_adapters) return nullptr;
  return std::make_unique<AdaptedProducts>(whole, options.rank, weights, ops);
}

}  // namespace minisgl::model
