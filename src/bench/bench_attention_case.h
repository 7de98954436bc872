// One problem size of the attention operation with generated inputs: rows of equal length over a
// shuffled page table. Keys and values are written by RopeKvWrite, so that they have the device's
// layout.
//
// Several copies of the rows with different keys allow launches in sequence without cache hits.
// Used by one thread; the device must outlive it.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/bench_device.h"
#include "engine/kv_storage.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"

namespace minisgl::bench {

struct AttentionHeads {
  int32_t query = 16;
  int32_t kv = 8;
  int32_t dim = 128;
  int32_t latent = 0;  // features of a key that are its value (latent attention); 0: none
  KvKind kv_kind = KvKind::kAuto;

  int32_t value_dim() const { return latent == 0 ? dim : latent; }
  // Width of a token's queries, keys and stored values for `num_heads` query heads.
  int64_t token_width(int64_t num_heads) const {
    return (num_heads + (latent == 0 ? 2 : 1) * int64_t{kv}) * dim;
  }
};

struct AttentionSize {
  int32_t page_size = 16;
  int32_t num_rows = 1;
  int32_t extend_len = 1;  // query tokens of each row: 1 for decoding
  int32_t kv_len = 1;      // keys of each row, >= extend_len
  int32_t shared_len = 0;  // leading keys in pages common to all rows; rounded down to whole pages

  int32_t num_tokens() const { return num_rows * extend_len; }
  int32_t row_pages() const { return (kv_len + page_size - 1) / page_size; }
  int32_t shared_pages() const { return shared_len / page_size; }
  // Pages of one copy.
  int64_t num_pages() const {
    return shared_pages() + int64_t{num_rows} * (row_pages() - shared_pages());
  }
  // Keys of one copy; shared ones are counted once.
  int64_t num_keys() const {
    const int64_t shared = int64_t{shared_pages()} * page_size;
    return shared + num_rows * (kv_len - shared);
  }
};

class AttentionCase {
 public:
  // REQUIRES copies * size.num_pages() < 2^31.
  static Result<std::unique_ptr<AttentionCase>> Make(const AttentionSize& size,
                                                     const AttentionHeads& heads, int copies,
                                                     uint64_t seed, BenchDevice* device);

  // Launches attention on copy `copy`.
  void Launch(int copy);
  // Call after a Launch: kInternal if an output is not finite.
  Status CheckFinite();

 private:
  AttentionCase(const AttentionSize& size, const AttentionHeads& heads, BenchDevice* device)
      : size_(size), heads_(heads), device_(device) {}
  // Rounded to bf16 if the device is faster then, as for a model.
  KvLayer Kv() const;
  Status MakeArrays(int copies, uint64_t seed);
  Status MakeGroups();
  Status Plan();
  Status FillKv(int64_t num_slots, uint64_t seed);

  const AttentionSize size_;
  const AttentionHeads heads_;
  BenchDevice* const device_;
  engine::KvStorage kv_;
  ActivationArray qkv_, out_;
  DeviceArray<int32_t> page_table_, table_row_, row_begin_, kv_len_;
  // SharedPrefixes; null if rows share too little.
  DeviceArray<int32_t> num_groups_, group_begin_, group_rows_, shared_splits_;
};

// A configuration with one layer of these heads, in bf16.
ModelConfig AttentionConfig(const AttentionHeads& heads);

// The types of keys and values of such a layer.
inline engine::KvFormat BenchKvFormat(const AttentionHeads& heads, const Ops& ops) {
  return {KvDType(ops.activation_dtype(), DType::kBF16), heads.kv_kind};
}
// "bf16", or "fp8".
const char* KvFormatName(const engine::KvFormat& format);

// Bytes of the stored key and value of one token.
uint64_t KvTokenBytes(const AttentionHeads& heads, const engine::KvFormat& format);

}  // namespace minisgl::bench
