// What minisgl info says of adapters.
#pragma once

#include <string>

#include "minisgl/base/status.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::cli {

// Appends, for each adapter of `text`, what it changes, and whether it fits the model. Returns the
// error of the first that does not fit.
Status DescribeAdapters(const TextModel& text, const ModelConfig& config, std::string* out);

}  // namespace minisgl::cli
