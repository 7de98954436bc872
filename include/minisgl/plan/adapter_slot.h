// The adapter of a row: low-rank matrices that are added to the model's.
#pragma once

#include <cstdint>

namespace minisgl {

// Where an engine holds an adapter.
using AdapterSlot = int32_t;
inline constexpr AdapterSlot kNoAdapter = -1;

// All tokens [token, token + count) of one row of a plan go through the adapter in `slot`.
struct AdapterSpan {
  int32_t token = 0;
  int32_t count = 0;
  AdapterSlot slot = kNoAdapter;

  friend bool operator==(const AdapterSpan&, const AdapterSpan&) = default;
};

}  // namespace minisgl
