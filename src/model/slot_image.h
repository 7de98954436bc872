// What a slot of a device holds of an adapter (minisgl/adapter_params.h): its products, its
// embedding, then their matrices, as one piece of bytes that is right at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/model_config.h"
#include "model/adapter_pack.h"

namespace minisgl::model {

// Where a slot has what belongs to each site, and what adapters may have there. The same for all
// slots of a decoder.
struct SlotSite {
  int64_t first_product = 0;  // one, or one for each expert
  int64_t num_products = 1;
  int32_t max_ranks = 0;  // the most of any adapter
  bool has_whole = false;
  bool is_changed = false;  // by an adapter
};

struct SlotLayout {
  std::vector<SlotSite> sites;
  SlotSite embedding;          // its product is that of B
  bool has_embedding = false;  // an adapter changes it
  int64_t num_products = 0;
  int64_t slot_bytes = 0;  // of the largest adapter

  int64_t embedding_place() const;  // of SlotEmbedding
};

// Adds what `adapter` has. Errors of CheckAdapterFits.
Status AddToLayout(const ModelConfig& config, const std::vector<AdapterSite>& sites,
                   const Adapter& adapter, SlotLayout* layout);
// A layout without adapters.
SlotLayout EmptyLayout(const std::vector<AdapterSite>& sites);

// The bytes of a slot for `packed`, whose matrices are in the memory of the host, at most
// layout.slot_bytes if the layout has its adapter.
std::vector<std::byte> MakeSlotImage(const ModelConfig& config, const SlotLayout& layout,
                                     const PackedAdapter& packed);

}  // namespace minisgl::model
