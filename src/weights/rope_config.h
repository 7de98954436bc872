// The rotary settings of config.json, in either spelling.
#pragma once

#include "weights/architecture_table.h"

namespace minisgl::weights {

// Fills config->ropes (where layers with windows have one of their own it is the second) and
// query_scale_*. REQUIRES sizes read and in their ranges.
void ReadRopes(const Architecture& architecture, FieldReader* reader, ModelConfig* config);

}  // namespace minisgl::weights
