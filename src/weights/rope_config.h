// The rotary settings of config.json, in either spelling.
#pragma once

#include "weights/architecture_table.h"

namespace minisgl::weights {

// Sets config->ropes (the second for layers with windows, if they have a separate one) and
// query_scale_*. REQUIRES valid sizes in `config`.
void ReadRopes(const Architecture& architecture, FieldReader* reader, ModelConfig* config);

}  // namespace minisgl::weights
