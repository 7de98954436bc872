// cuBLASLt, loaded at run time. LoadCublasLt is declared in cuda_api.h.
#pragma once

#include <memory>

#include "cuda_api.h"
#include "library_search.h"
#include "work_timer.h"

namespace minisgl::cuda {

// Checks that the library can be loaded. kUnavailable, with the places tried and the loader's
// messages, if not.
Status FindCublasLt(CudaApi* api);

// The names under which the library is searched. kUnavailable if the driver is too old for all.
// driver_version: in CUDA's form, 13000 for 13.0.
Result<LibraryNames> CublasLtNames(int driver_version, const SearchPlaces& places);

// LoadCublasLt with the first of `library.names` that loads, and with `timer` in place of CUDA's
// events unless it is null.
Result<std::unique_ptr<MatmulLibrary>> LoadCublasLtOf(const LibraryNames& library,
                                                      const MatmulSetup& setup,
                                                      std::unique_ptr<WorkTimer> timer = nullptr);

}  // namespace minisgl::cuda
