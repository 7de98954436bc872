// Products that are held back until another operation is queued, so that products that follow each
// other run as one kernel (kernels/gemv_chain.h).
#pragma once

#include <optional>
#include <vector>

#include "kernels/gemv_chain.h"

namespace minisgl::cuda {

class ProductChain {
 public:
  // A product with copies of what stands around it; its matrix is the caller's.
  class Item {
   public:
    explicit Item(const FusedLinearParams& params);
    FusedLinearParams Params() const;
    ProductParams Product() const;

   private:
    FusedLinearParams params_;
    std::optional<NormParams> norm_;
    std::optional<ActivateParams> activation_;
  };

  bool empty() const { return items_.empty(); }
  bool full() const { return items_.size() == kChainProductsMax; }
  // Returns false if the product is of no chain. REQUIRES that it is not full, and products of one
  // type.
  bool Add(const LaunchContext& context, const FusedLinearParams& params);
  // Returns what was added, and keeps nothing.
  std::vector<Item> Take();

 private:
  std::vector<Item> items_;
};

}  // namespace minisgl::cuda
