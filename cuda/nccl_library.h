// NCCL's functions that this program calls, loaded at run time. Nothing of the library is linked,
// and none of its headers is needed: its documented interface has the types here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "cuda_api.h"
#include "library_search.h"

namespace minisgl::cuda {

using NcclResult = int;
// NCCL's names (ncclSuccess...) and numbers.
enum NcclResultCode : NcclResult { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int { kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclBfloat16 = 9 };
inline constexpr int kNcclSum = 0;  // of its operations
using NcclComm = struct NcclCommTag*;

// The first version for CUDA 12, in NCCL's form: 22703 for 2.27.3.
inline constexpr int kNcclVersionMin = 21600;

// Milliseconds of the system's steady clock.
int64_t SteadyMs();

struct NcclLibrary {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*error_string)(NcclResult result) = nullptr;
  const char* (*last_error)(NcclComm comm) = nullptr;
  NcclResult (*comm_init_all)(NcclComm* comms, int count, const int* devices) = nullptr;
  NcclResult (*comm_destroy)(NcclComm comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm comm) = nullptr;
  NcclResult (*async_error)(NcclComm comm, NcclResult* error) = nullptr;
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                           NcclComm comm, CudaStream stream) = nullptr;
  int version = 0;
  int64_t (*now_ms)() = SteadyMs;  // measures waits; tests set a clock of their own

  // "2.27.3"
  std::string VersionText() const;
  // "unhandled system error (what NCCL says of it)"
  std::string ErrorText(NcclResult error, NcclComm comm = nullptr) const;
};

// The library under the first of `names` that loads, has all functions and is new enough. kUsage
// with the reasons if there is none: it is loaded only if the user asks for it.
Result<NcclLibrary> LoadNcclOf(const LibraryNames& names);
// Under the names that the loader and the environment know (library_search.h).
Result<NcclLibrary> LoadNccl();
// A function like it.
using NcclLoader = std::function<Result<NcclLibrary>()>;

}  // namespace minisgl::cuda
