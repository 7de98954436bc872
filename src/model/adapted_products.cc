// See adapted_products.h.
#include "model/adapted_products.h"

#include <utility>

#include "model/adapter_ops.h"
#include "model/slot_adapters.h"

namespace minisgl::model {
namespace {

// Adapters in the memory of the host.
class HostAdapters final : public AdaptedProducts {
 public:
  HostAdapters(const WholeModel& whole, const Rank& rank, const ModelWeights& weights, Ops* ops)
      : config_(whole.config),
        rank_(rank),
        device_ops_(ops),
        adapter_ops_(ops, rank, AdapterSites(config_, rank, whole.checkpoint, weights, ops),
                     &weights.embedding) {}

  Ops* ops() override { return &adapter_ops_; }
  void BeginTokens(const ForwardInput& input) override { adapter_ops_.BeginTokens(input.adapters); }
  void BeginRows(const ForwardInput& input) override {
    adapter_ops_.BeginRows(input.logit_tokens, input.num_logit_tokens);
  }
  Result<std::shared_ptr<const PackedAdapter>> Pack(std::shared_ptr<const Adapter> adapter,
                                                    const Checkpoint& checkpoint) const override {
    return PackAdapter(config_, rank_, checkpoint, adapter_ops_.sites(), std::move(adapter),
                       device_ops_);
  }
  void Set(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter) override {
    adapter_ops_.SetAdapter(slot, std::move(adapter));
  }

 private:
  const ModelConfig config_;
  const Rank rank_;
  Ops* const device_ops_;
  AdapterOps adapter_ops_;
};

}  // namespace

std::unique_ptr<AdaptedProducts> MakeAdapters(const WholeModel& whole,
                                              const DecoderOptions& options,
                                              const ModelWeights& weights, Ops* ops) {
  if (!options.takes_adapters) return nullptr;
  if (ops->HasAdapterSlots()) return MakeSlotAdapters(whole, options, weights, ops);
  return std::make_unique<HostAdapters>(whole, options.rank, weights, ops);
}

}  // namespace minisgl::model
