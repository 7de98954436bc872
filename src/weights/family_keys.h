// Readers of the keys that only one family of architectures has; the table of architectures points
// at them. Each is called last, with everything else of the configuration read and in its range.
#pragma once

#include "minisgl/weights/model_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

void ReadGemma(FieldReader* reader, ModelConfig* config);
void ReadGemma2(FieldReader* reader, ModelConfig* config);
void ReadGemma3(FieldReader* reader, ModelConfig* config);
void ReadGemma4(FieldReader* reader, ModelConfig* config);
void ReadGemma4Unified(FieldReader* reader, ModelConfig* config);
void ReadMuseGlimmer(FieldReader* reader, ModelConfig* config);
void ReadCohere2(FieldReader* reader, ModelConfig* config);
void ReadCohere2Moe(FieldReader* reader, ModelConfig* config);
void ReadApertus(FieldReader* reader, ModelConfig* config);
void ReadStableLm(FieldReader* reader, ModelConfig* config);
void ReadMixtral(FieldReader* reader, ModelConfig* config);
void ReadQwen2Moe(FieldReader* reader, ModelConfig* config);
void ReadQwen3Moe(FieldReader* reader, ModelConfig* config);
void ReadQwen3VlMoe(FieldReader* reader, ModelConfig* config);
void ReadHunYuanMoe(FieldReader* reader, ModelConfig* config);
void ReadExaoneMoe(FieldReader* reader, ModelConfig* config);
void ReadOlmoe(FieldReader* reader, ModelConfig* config);
void ReadGraniteMoe(FieldReader* reader, ModelConfig* config);
void ReadGlm4Moe(FieldReader* reader, ModelConfig* config);
void ReadErnie4_5Moe(FieldReader* reader, ModelConfig* config);
void ReadMiniMaxM2(FieldReader* reader, ModelConfig* config);
void RenameLlama4(Json* config);
void ReadLlama4Text(FieldReader* reader, ModelConfig* config);
void ReadGptOss(FieldReader* reader, ModelConfig* config);
void ReadLfm2(FieldReader* reader, ModelConfig* config);
void ReadLfm2Moe(FieldReader* reader, ModelConfig* config);
void ReadDeepseekV2(FieldReader* reader, ModelConfig* config);
void ReadDeepseekV3(FieldReader* reader, ModelConfig* config);
void ReadGlm4MoeLite(FieldReader* reader, ModelConfig* config);
void ReadQwen3Next(FieldReader* reader, ModelConfig* config);
void ReadQwen3_5(FieldReader* reader, ModelConfig* config);
void ReadQwen3_5Moe(FieldReader* reader, ModelConfig* config);
void ReadGraniteMoeHybrid(FieldReader* reader, ModelConfig* config);
void ReadBamba(FieldReader* reader, ModelConfig* config);
void ReadOlmoHybrid(FieldReader* reader, ModelConfig* config);
void ReadFalconH1(FieldReader* reader, ModelConfig* config);
int32_t CountNemotronHLayers(FieldReader* reader);
void ReadNemotronH(FieldReader* reader, ModelConfig* config);

// The bounds of the steps of a state space, [least, most] of `key`; none if it is absent.
void ReadStepLimit(FieldReader* reader, const char* key, StateConfig* states);
// Reads the layers with a dense feed-forward part of intermediate_size.
void ReadDenseLayers(FieldReader* reader, ModelConfig* config);
// Multipliers of embeddings, attention, residual and logits.
void ReadGranite(FieldReader* reader, ModelConfig* config);

}  // namespace minisgl::weights
