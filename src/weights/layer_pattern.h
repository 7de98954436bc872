// The settings of a configuration that differ from layer to layer.
#pragma once

#include "weights/architecture_table.h"

namespace minisgl::weights {

// Fills config->layers, one for each layer: windows and rotary. REQUIRES sizes and ropes read.
void ReadLayers(const Architecture& architecture, FieldReader* reader, ModelConfig* config);

// Makes the layer one whose mixer has a state.
void SetStateMixer(Mixer mixer, LayerConfig* layer);

}  // namespace minisgl::weights
