// A step of rows over a paged cache, run on the device and by the oracle.
//
// Pages and table rows are in random order. Slots that no token sees hold NaN, as do the parts of
// qkv that attention does not read, and unused page table entries are far out of the cache: a stray
// read shows in the result, or as a fault.
#pragma once

#include <string>
#include <vector>

#include "gpu/gpu_fixture.h"
#include "paged_attention.h"

namespace minisgl::cuda {

struct GpuAttentionCase {
  DType dtype = DType::kBF16;
  int32_t head_dim = 128;
  int32_t num_heads = 4, num_kv_heads = 2;
  int32_t page_size = 16;
  std::vector<PagedAttentionRow> rows;
  int32_t window = 0;
  float softcap = 0;
  bool has_sinks = false;
  bool deterministic = false;
  uint64_t seed = 1;
  int32_t value_dim = 0;  // 0: head_dim
  bool values_in_keys = false;

  std::string Name() const;
};

class GpuAttentionScene {
 public:
  explicit GpuAttentionScene(const GpuAttentionCase& c);

  // Returns the outputs of `rows`, [T, H * EV] as stored, in that order; runs twice. The leading
  // rows of one token are decode rows.
  std::vector<unsigned char> Run(const std::vector<int32_t>& rows) const;
  std::vector<unsigned char> Run() const { return Run(all_rows_); }
  // The output of one row, run alone.
  std::vector<unsigned char> Alone(int32_t row) const { return Run({row}); }
  // The part of Run()'s result that belongs to `row`.
  std::vector<unsigned char> RowOf(const std::vector<unsigned char>& all, int32_t row) const;

  // Compares Run() with the oracle.
  void Check() const;

 private:
  // The inputs of Run and of the oracle, for some of the rows.
  struct Step {
    std::vector<int32_t> table_row, row_begin = {0}, kv_len;
    std::vector<float> qkv;
    int32_t num_decode_rows = 0;
  };
  Step StepOf(const std::vector<int32_t>& rows) const;
  AttentionParams Params(const Step& step) const;
  std::vector<float> Expected(bool magnitude) const;
  void FillKeys();

  int64_t qkv_width() const { return TokenWidth(case_); }
  int64_t out_width() const { return int64_t{case_.num_heads} * ValueDim(case_); }

  GpuAttentionCase case_;
  std::mt19937_64 random_;
  PageTables tables_;
  std::vector<int32_t> all_rows_, row_begin_;
  std::vector<float> keys_, qkv_, sinks_;
};

}  // namespace minisgl::cuda
