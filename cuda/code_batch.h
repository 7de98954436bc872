// Rows of weights as the codes and scales of a CodedRun, made in host memory some at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "coded_matrix.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cuda {

// A row of weights: output `out` of `part`.
struct WeightRow {
  const WeightTensor* part = nullptr;
  int64_t out = 0;
};

class CodeBatch {
 public:
  // Takes bytes of the run's memory from `offset` on; returns false to stop.
  using Take = std::function<bool(size_t offset, std::span<const std::byte> bytes)>;

  // `quantizes`: the rows are quantized; otherwise they have the codes of run.form.
  CodeBatch(const CodedRun& run, int64_t num_in, const CodeOrder& order, bool quantizes)
      : run_(run), num_in_(num_in), order_(order), quantizes_(quantizes) {}

  // Passes the memory of all rows of the run on, in parts. REQUIRES run.count rows.
  void ForAll(std::span<const WeightRow> rows, ThreadPool* pool, const Take& take);

 private:
  struct Array {
    size_t offset;      // in the run's memory
    int64_t row_bytes;  // 0: the form has none
    std::vector<std::byte> bytes;
    std::byte* row(int64_t index) { return bytes.data() + index * row_bytes; }
  };

  void FillRow(const WeightRow& row, int64_t index, uint8_t* codes);

  const CodedRun& run_;
  const int64_t num_in_;
  const CodeOrder order_;
  const bool quantizes_;
  std::vector<Array> arrays_;
};

}  // namespace minisgl::cuda
