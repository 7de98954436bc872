// cuBLASLt, loaded at run time. LoadCublasLt is declared in cuda_api.h.
#pragma once

#include <memory>
#include <span>

#include "cuda_api.h"

namespace minisgl::cuda {

// Checks that the library can be loaded. kUnavailable, with the names tried and the loader's
// messages, if not.
Status FindCublasLt();

// LoadCublasLt with the first of `names` that loads.
Result<std::unique_ptr<MatmulLibrary>> LoadCublasLtOf(std::span<const char* const> names,
                                                      void* workspace, size_t workspace_bytes,
                                                      bool deterministic);

}  // namespace minisgl::cuda
