// Adapters in GGUF files, as llama.cpp's converter writes them: for a tensor NAME of the model
// "NAME.lora_a" and "NAME.lora_b", and one alpha for all.
//
// Source: convert_lora_to_gguf.py and llama-adapter.cpp of llama.cpp. The scale is alpha over the
// tensor's rank, or 1 if alpha is 0; the pair of the embedding is stored turned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::weights {

// kBadInput with the file and the key or tensor.
Result<std::shared_ptr<const Adapter>> LoadGgufAdapter(const std::string& path);

// The name that such an adapter, of a file of `architecture`, gives the module of `spec`: that of a
// tensor without ".weight". "" if files of that architecture have no tensor for it.
std::string GgufModuleOf(std::string_view architecture, const TensorSpec& spec);

// Which stored row each of `num_rows` outputs of `spec` has in such a file; empty: its own. Nullopt
// if an adapter's rows cannot be put in order.
std::optional<std::vector<int64_t>> GgufRowsOf(std::string_view architecture,
                                               const ModelConfig& config, const TensorSpec& spec,
                                               int64_t num_rows);

}  // namespace minisgl::weights
