// Reads the keys of `quantization_config` (quantization_config.h). An unknown method, format,
// strategy or order is an error that names its key and value; keys that say nothing about stored
// weights are ignored.
#pragma once

#include "minisgl/weights/quantization_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// Reads quantization_config of config.json. `reader` is at the file's top level.
void ReadQuantization(FieldReader* reader, QuantizationConfig* config);

// Parses hf_quant_config.json, for a config.json without a quantization_config.
Result<QuantizationConfig> ParseModelOptFile(const std::string& text, const std::string& file);

}  // namespace minisgl::weights
