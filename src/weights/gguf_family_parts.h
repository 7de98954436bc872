// Parts of a configuration that several families of GGUF files have.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "weights/gguf_metadata.h"

namespace minisgl::weights {

// The number N of a tensor "blk.N.REST", and "REST"; -1 for other names.
std::pair<int64_t, std::string_view> GgufLayerOf(std::string_view tensor);

// Names another entry of the table of architectures than that of the file's own name.
void SetArchitecture(const char* name, const char* model_type, Json* config);

// Windows in all layers but the last of each `period`, unless the file says which. Layers after the
// model's, which draft tokens, are left out.
void WriteWindows(GgufMetadata* metadata, int64_t period, Json* config);

// The width of a part: the number of `name`, or the outputs of `tensor` in files without it.
int64_t WidthOf(GgufMetadata* metadata, const char* name, const char* tensor);

// For each layer of the model, true if it has a tensor of this name.
std::vector<bool> LayersWith(const GgufMetadata& metadata, const Json& config,
                             std::string_view name);
// True if any has.
bool AnyLayerHas(const GgufMetadata& metadata, const Json& config, std::string_view name);

// "num_experts", "num_experts_per_tok" and "moe_intermediate_size".
void WriteExperts(GgufMetadata* metadata, Json* config);
// Those under "num_local_experts", of a family whose experts have the width of a dense part.
void WriteLocalExperts(GgufMetadata* metadata, Json* config);
// Experts that sigmoids or softmax choose, maybe by groups, and the shared ones.
void WriteRoutedExperts(GgufMetadata* metadata, Json* config);

// The gated delta rule and which layers have it, under the names of Qwen.
void WriteDeltaNet(GgufMetadata* metadata, Json* config);
// A selective state space under the names of Granite, Bamba and Falcon-H1.
void WriteMamba2(GgufMetadata* metadata, Json* config);

}  // namespace minisgl::weights
