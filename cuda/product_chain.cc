// See product_chain.h.
#include "product_chain.h"

#include <utility>

namespace minisgl::cuda {

ProductChain::Item::Item(const FusedLinearParams& params) : params_(params) {
  if (params.norm != nullptr) norm_ = *params.norm;
  if (params.activation != nullptr) activation_ = *params.activation;
}

FusedLinearParams ProductChain::Item::Params() const {
  FusedLinearParams params = params_;
  params.norm = norm_ ? &*norm_ : nullptr;
  params.activation = activation_ ? &*activation_ : nullptr;
  return params;
}

ProductParams ProductChain::Item::Product() const {
  return {.linear = params_.linear,
          .norm = norm_ ? &*norm_ : nullptr,
          .activation = activation_ ? &*activation_ : nullptr,
          .residual = params_.residual,
          .residual_scale = params_.residual_scale};
}

bool ProductChain::Add(const LaunchContext& context, const FusedLinearParams& params) {
  if (params.activation != nullptr && !ProductTakesActivation(*params.activation)) return false;
  const Item item(params);
  if (!ChainTakes(context, item.Product())) return false;
  items_.push_back(item);
  return true;
}

std::vector<ProductChain::Item> ProductChain::Take() { return std::exchange(items_, {}); }

}  // namespace minisgl::cuda
