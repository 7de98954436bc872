// A step of rows over a paged cache, on the device and by the oracle.
//
// Pages are taken in random order, table rows too. Slots that no token may see hold NaN, as do the
// parts of qkv that attention does not read; page table entries of no key lead far out of the
// cache. So a stray read shows in the result, or as a fault.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "gpu/gpu_fixture.h"

namespace minisgl {

struct GpuAttentionRow {
  int32_t num_tokens;
  int32_t kv_len;
};

struct GpuAttentionCase {
  DType dtype = DType::kBF16;
  int32_t head_dim = 128;
  int32_t num_heads = 4, num_kv_heads = 2;
  int32_t page_size = 16;
  std::vector<GpuAttentionRow> rows;
  int32_t window = 0;
  float softcap = 0;
  bool has_sinks = false;
  bool deterministic = false;
  uint64_t seed = 1;

  std::string Name() const;
};

class GpuAttentionScene {
 public:
  explicit GpuAttentionScene(const GpuAttentionCase& c);

  // The outputs of the rows named, [T, H * E] as stored, in that order; run twice. The first of
  // them that have one token are decode rows.
  std::vector<unsigned char> Run(const std::vector<int32_t>& rows) const;
  std::vector<unsigned char> Run() const { return Run(all_rows_); }
  // Of one row, by Run of it alone.
  std::vector<unsigned char> Alone(int32_t row) const { return Run({row}); }
  // The part of what Run() gave that is of `row`.
  std::vector<unsigned char> RowOf(const std::vector<unsigned char>& all, int32_t row) const;

  // Run() against the oracle.
  void Check() const;

 private:
  // What Run and the oracle are given: of some of the rows.
  struct Step {
    std::vector<int32_t> table_row, row_begin = {0}, kv_len;
    std::vector<float> qkv;
    int32_t num_decode_rows = 0;
  };
  Step StepOf(const std::vector<int32_t>& rows) const;
  AttentionParams Params(const Step& step) const;
  std::vector<float> Expected(bool magnitude) const;
  void FillPageTable(std::mt19937_64* random);
  void FillKeys();

  int64_t qkv_width() const {
    return int64_t{case_.num_heads + 2 * case_.num_kv_heads} * case_.head_dim;
  }
  int64_t out_width() const { return int64_t{case_.num_heads} * case_.head_dim; }

  GpuAttentionCase case_;
  int64_t num_pages_ = 0, table_stride_ = 0;
  std::vector<int32_t> all_rows_, row_begin_, table_row_, page_table_;
  std::vector<float> keys_, qkv_, sinks_;
};

}  // namespace minisgl
