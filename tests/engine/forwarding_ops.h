// Operations that forward every call to the oracle's. A test overrides those that it watches or
// makes fail.
#pragma once

#include <memory>
#include <string>

#include "minisgl/ops.h"
#include "model/forwarding_ops.h"

namespace minisgl {

class OwnedOracle {
 protected:
  explicit OwnedOracle(const HostRank& rank) : oracle_(MakeNaiveOps(DType::kF32, rank)) {}
  const std::unique_ptr<Ops> oracle_;
};

class ForwardingOps : private OwnedOracle, public model::ForwardingOps {
 public:
  explicit ForwardingOps(const HostRank& rank = {})
      : OwnedOracle(rank), model::ForwardingOps(oracle_.get()) {}

  std::string Name() const override { return "forwarding"; }
};

}  // namespace minisgl
