// The memory of a decoder, counted before it is loaded.
#include "minisgl/model/decoder.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl {

DecoderBytes CountDecoderBytes(const ModelConfig& config, const DecoderOptions& options) {
  return {.weights = CountDecoderWeights(config, options),
          .workspace = CountDecoderWorkspace(config, options)};
}

std::optional<uint64_t> CountDecoderWeights(const ModelConfig& config,
                                            const DecoderOptions& options) {
  return model::ModelWeightBytes(config, options.weight_format, options.activation_dtype,
                                 options.rank, options.num_host_layers, options.packs_6_bits);
}

std::optional<uint64_t> CountDecoderWorkspace(const ModelConfig& config,
                                              const DecoderOptions& options) {
  return model::WorkspaceBytes(RankConfig(config, options.rank), options, config.vocab_size);
}

}  // namespace minisgl
