// cuBLASLt, loaded when it is needed. LoadCublasLt (cuda_api.h) is the rest of this.
#pragma once

#include <memory>
#include <span>

#include "cuda_api.h"

namespace minisgl {

// Loads the library and lets nothing run. kUnavailable: which names were looked for, and the
// loader's words.
Status FindCublasLt();

// LoadCublasLt of the first of `names` that loads.
Result<std::unique_ptr<MatmulLibrary>> LoadCublasLtOf(std::span<const char* const> names,
                                                      void* workspace, size_t workspace_bytes,
                                                      bool deterministic);

}  // namespace minisgl
