// The option of each setting that other rooms name in messages.
#pragma once

#include "minisgl/base/setting.h"

namespace minisgl::load {

// Returns the option of `setting`: "--max-seq-len".
const char* OptionName(Setting setting);

}  // namespace minisgl::load
