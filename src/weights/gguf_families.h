// Families of GGUF files whose metadata say more than sizes: what GgufArchitecture::write adds to
// the configuration.
//
// Source: the converter of llama.cpp, and for what files leave out its loader.
#pragma once

#include "minisgl/base/json.h"
#include "weights/gguf_metadata.h"

namespace minisgl::weights {

// gguf_families_dense.cc: one dense feed-forward part in each layer.
void WriteLlama(GgufMetadata* metadata, Json* config);  // with experts it is Mixtral
void WriteMistral3(GgufMetadata* metadata, Json* config);
void WriteGranite(GgufMetadata* metadata, Json* config);
void WritePhi3(GgufMetadata* metadata, Json* config);
void WriteGemma2(GgufMetadata* metadata, Json* config);
void WriteBert(GgufMetadata* metadata, Json* config);
void WriteJinaBert(GgufMetadata* metadata, Json* config);
void WriteGemma3(GgufMetadata* metadata, Json* config);
void WriteMuseGlimmer(GgufMetadata* metadata, Json* config);
void WriteOlmo2(GgufMetadata* metadata, Json* config);  // with windows it is OLMo 3
void WriteExaone4(GgufMetadata* metadata, Json* config);
void WriteCohere2(GgufMetadata* metadata, Json* config);
void WriteStableLm(GgufMetadata* metadata, Json* config);
void WriteStarcoder2(GgufMetadata* metadata, Json* config);

// gguf_families_experts.cc
void WriteQwen2Moe(GgufMetadata* metadata, Json* config);
void WriteQwen3Moe(GgufMetadata* metadata, Json* config);
void WriteOlmoe(GgufMetadata* metadata, Json* config);
void WriteGraniteMoe(GgufMetadata* metadata, Json* config);
void WriteGlm4Moe(GgufMetadata* metadata, Json* config);
void WriteErnie45Moe(GgufMetadata* metadata, Json* config);
void WriteExaoneMoe(GgufMetadata* metadata, Json* config);
void WriteCohere2Moe(GgufMetadata* metadata, Json* config);
void WriteHunYuanMoe(GgufMetadata* metadata, Json* config);
void WriteMiniMaxM2(GgufMetadata* metadata, Json* config);
void WriteGptOss(GgufMetadata* metadata, Json* config);

// gguf_families_states.cc: some layers or all have a state.
void WriteLfm2(GgufMetadata* metadata, Json* config);
void WriteLfm2Moe(GgufMetadata* metadata, Json* config);
void WriteQwen35(GgufMetadata* metadata, Json* config);
void WriteQwen35Moe(GgufMetadata* metadata, Json* config);
void WriteQwen3Next(GgufMetadata* metadata, Json* config);
void WriteGraniteHybrid(GgufMetadata* metadata, Json* config);  // with rotary it is Bamba
void WriteFalconH1(GgufMetadata* metadata, Json* config);

// gguf_families.cc
void WriteDeepseek2(GgufMetadata* metadata, Json* config);  // and others with latent attention
void WriteNemotronH(GgufMetadata* metadata, Json* config);
void WriteGemma4(GgufMetadata* metadata, Json* config);

}  // namespace minisgl::weights
