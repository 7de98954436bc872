// The oracle's products of low rank, of activations of any dtype.
#pragma once

#include "minisgl/adapter_params.h"

namespace minisgl::cpu {

void NaiveLowRank(const LowRankParams& params);
void NaiveSlotLowRank(const SlotLowRankParams& params);
void NaiveSlotEmbeddings(const SlotEmbeddingParams& params);

}  // namespace minisgl::cpu
