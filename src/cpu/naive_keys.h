// Keys and values of the oracle: where KvLayer puts them, and codes one by one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "cpu/naive_values.h"
#include "minisgl/ops_params.h"
#include "minisgl/tensor/e4m3_scale.h"

namespace minisgl::cpu {

// Index of the first element of a head's key in a slot, and of its value.
inline int64_t KeyAt(const KvLayer& kv, int64_t slot, int64_t head) {
  return slot / kv.page_size * kv.page_stride + slot % kv.page_size * kv.slot_stride +
         head * kv.head_stride;
}
inline int64_t ValueAt(const KvLayer& kv, int64_t slot, int64_t head) {
  return slot / kv.page_size * kv.page_stride + kv.v_offset +
         slot % kv.page_size * kv.value_slot_stride() + head * kv.value_head_stride();
}

// Element `e` of the head at element `at` of a page, whose scale, if it has one, is byte `scale`.
inline double GetKv(const KvLayer& kv, int64_t at, int64_t scale, int64_t e) {
  if (!kv.has_codes()) return Get(kv.base, at + e);
  const auto* const bytes = kv.base.as<uint8_t>();
  return static_cast<double>(E4M3ToFloat(bytes[at + e])) *
         std::bit_cast<float>(E4M3ScaleBits(bytes[scale]));
}

// Writes the head of which the elements are `x`.
inline void PutKv(const KvLayer& kv, int64_t at, int64_t scale, const std::vector<double>& x) {
  if (!kv.has_codes()) {
    for (size_t e = 0; e < x.size(); ++e) Put(kv.base, at + static_cast<int64_t>(e), x[e]);
    return;
  }
  auto* const bytes = kv.base.as<uint8_t>();
  uint32_t most = 0;
  for (const double value : x) {
    most = std::max(most, std::bit_cast<uint32_t>(static_cast<float>(value)) & 0x7FFFFFFFu);
  }
  bytes[scale] = E4M3ScaleOf(most);
  const auto inverse = std::bit_cast<float>(E4M3InverseScaleBits(bytes[scale]));
  for (size_t e = 0; e < x.size(); ++e) {
    bytes[at + static_cast<int64_t>(e)] = ToE4M3(static_cast<float>(x[e]) * inverse);
  }
}

// The bytes of the scales of a head's key and value in a slot.
inline int64_t ScaleAt(const KvLayer& kv, int64_t slot, int64_t head, int64_t scales) {
  return slot / kv.page_size * kv.page_stride + scales + head * kv.page_size + slot % kv.page_size;
}

}  // namespace minisgl::cpu
