// What minisgl info says of the device and the memory plan.
#pragma once

#include <string>

#include "load/device_choice.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::cli {

// Appends the lines of a plan (InfoLine of gguf_info.h). `config`: of the target.
void DescribePlan(const load::EngineSetup& engine, const ModelConfig& config, std::string* out);

}  // namespace minisgl::cli
