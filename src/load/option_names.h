// The options that the settings in messages of other rooms stand for.
#pragma once

#include "minisgl/base/setting.h"

namespace minisgl::load {

// "--max-seq-len"
const char* OptionName(Setting setting);

}  // namespace minisgl::load
