// How keys and values are kept.
#pragma once

#include <cstdint>

namespace minisgl {

// As KvDType (ops_params.h) says, or, in layers that can (engine/kv_storage.h), as codes of 8 bits
// with a scale for each token and head.
enum class KvKind : uint8_t { kAuto, kFp8 };

}  // namespace minisgl
