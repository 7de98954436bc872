// Adapters of a model (minisgl/weights/adapter.h): whether they fit it, and what a decoder keeps of
// one to apply it beside its products.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// Checks that each module which `adapter` changes is one of the model, of its shape, and of a kind
// that is adapted. kBadInput with the adapter's directory, the module, and what was found and
// needed. Reads shapes only.
Status CheckAdapterFits(const ModelConfig& config, const Adapter& adapter);

// A model with an adapter folded into its weights: W' = W + s B A, with DoRA W'[j] = m[j] / n[j]
// (W + s B A)[j], computed and kept in f32. A head that was tied to the embedding is a matrix of
// its own if one of the two changes alone.
struct MergedModel {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
};
// Errors of CheckAdapterFits; kBadInput if the weights to change are quantized, or stored in a GGUF
// file. The result shares the memory of both.
Result<MergedModel> MergeAdapter(const ModelConfig& config, const Checkpoint& checkpoint,
                                 std::shared_ptr<const Adapter> adapter);
// The configuration of that model, for its memory plan. Reads no weights.
Result<ModelConfig> MergedConfig(const ModelConfig& config, const Adapter& adapter);

// The modules of the model that the adapter's configuration names and it has no tensors of: it
// answers as the base there. REQUIRES that it fits.
std::vector<std::string> LackedModules(const ModelConfig& config, const Adapter& adapter);

// What an adapter changes, for reports: one line for each kind of module ("self_attn.q_proj").
struct AdaptedKind {
  std::string name;         // of the module, without the layer's number
  int64_t num_modules = 0;  // layers, or experts of layers, that have it
  int64_t rank_min = 0, rank_max = 0;
  bool has_magnitude = false, has_bias = false, is_whole = false, has_tokens = false;
};
std::vector<AdaptedKind> AdaptedKinds(const Adapter& adapter);

// An upper bound on the bytes that a rank keeps of an adapter that fits: it counts the files'
// numbers as f32, in whole tiles of outputs.
uint64_t AdapterBytes(const ModelConfig& config, const Adapter& adapter);

// Upper bounds on what a rank keeps of such an adapter in a slot of a device (adapter_params.h),
// and on the floats that operations take for it in steps of so many tokens and rows of logits.
struct AdapterSlotNeeds {
  uint64_t slot_bytes = 0, inner_floats = 0;
};
AdapterSlotNeeds SlotNeedsOf(const ModelConfig& config, const Adapter& adapter,
                             int64_t max_step_tokens, int64_t max_logit_rows);

}  // namespace minisgl
