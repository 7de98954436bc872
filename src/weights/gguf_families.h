// Families of GGUF files whose metadata say more than sizes: what GgufArchitecture::write adds to
// the configuration.
//
// Source: the converter of llama.cpp, and for what files leave out its loader.
#pragma once

#include "minisgl/base/json.h"
#include "weights/gguf_metadata.h"

namespace minisgl::weights {

// DeepSeek V2 and V3, and others with latent attention.
void WriteDeepseek2(GgufMetadata* metadata, Json* config);
void WriteNemotronH(GgufMetadata* metadata, Json* config);
void WriteGemma4(GgufMetadata* metadata, Json* config);

}  // namespace minisgl::weights
