// The adapters of a decoder whose operations have them in slots of a device's memory.
//
// Every operation is queued for all rows of a step: which of them have an adapter, and which, is
// read on the device. Steps in which no row has one run the device's operations alone.
#pragma once

#include <memory>

#include "model/adapted_products.h"

namespace minisgl::model {

// REQUIRES options.takes_adapters; options.adapters fit the model.
std::unique_ptr<AdaptedProducts> MakeSlotAdapters(const WholeModel& whole,
                                                  const DecoderOptions& options,
                                                  const ModelWeights& weights, Ops* ops);

}  // namespace minisgl::model
