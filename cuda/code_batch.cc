// See code_batch.h.
#include "code_batch.h"

#include <algorithm>
#include <cstring>

#include "minisgl/base/check.h"

namespace minisgl::cuda {
namespace {

constexpr int64_t kBatchBytes = int64_t{4} << 20;

// The arrays in the order of CodeLayout.
enum : size_t { kCodes, kUpper, kScales, kBases, kZeros, kOffsets, kOffsetBases };

template <typename T>
void Copy(const std::vector<T>& from, int64_t row_bytes, std::byte* to) {
  static_assert(sizeof(T) == 1);
  MINISGL_CHECK(std::ssize(from) == row_bytes, "a row of {} bytes of scales, not {}", from.size(),
                row_bytes);
  if (row_bytes > 0) std::memcpy(to, from.data(), from.size());
}

}  // namespace

void CodeBatch::FillRow(const WeightRow& row, int64_t index, uint8_t* codes) {
  RowScales scales;
  if (quantizes_) {
    QuantizeFormRow(*row.part, row.out, run_.form, codes, &scales);
  } else {
    ReadFormCodes(*row.part, row.out, run_.form, codes);
    ReadFormScales(*row.part, row.out, run_.form, &scales);
  }
  WriteLines(run_.form, order_, codes, num_in_, arrays_[kCodes].row(index),
             arrays_[kUpper].row(index));
  const auto copy = [&](size_t array, const auto& from) {
    Copy(from, arrays_[array].row_bytes, arrays_[array].row(index));
  };
  copy(kScales, scales.scales);
  copy(kBases, scales.bases);
  copy(kZeros, scales.zeros);
  copy(kOffsets, scales.offsets);
  copy(kOffsetBases, scales.offset_bases);
}

void CodeBatch::ForAll(std::span<const WeightRow> rows, ThreadPool* pool, const Take& take) {
  const CodeForm& form = run_.form;
  const CodeLayout& layout = run_.layout;
  const int64_t scale_bytes = form.scale_bytes(num_in_), base_bytes = form.base_bytes(num_in_);
  arrays_.assign({{layout.codes, form.code_bytes(num_in_), {}},
                  {layout.upper, form.upper_bytes(num_in_), {}},
                  {layout.scales, scale_bytes, {}},
                  {layout.bases, base_bytes, {}},
                  {layout.zeros, form.zero_bytes(num_in_), {}},
                  {layout.offsets, form.has_offsets ? scale_bytes : 0, {}},
                  {layout.offset_bases, form.has_offsets ? base_bytes : 0, {}}});
  const int64_t batch = std::max<int64_t>(1, kBatchBytes / form.row_bytes(num_in_));
  std::vector<std::vector<uint8_t>> codes(static_cast<size_t>(pool->num_threads()));
  for (int64_t first = 0; first < std::ssize(rows); first += batch) {
    const int64_t count = std::min(batch, std::ssize(rows) - first);
    for (Array& array : arrays_) array.bytes.resize(static_cast<size_t>(count * array.row_bytes));
    pool->ParallelFor(count, [&](int64_t index, int thread) {
      std::vector<uint8_t>& own = codes[static_cast<size_t>(thread)];
      own.resize(static_cast<size_t>(num_in_));
      FillRow(rows[static_cast<size_t>(first + index)], index, own.data());
    });
    for (const Array& array : arrays_) {
      if (array.row_bytes == 0) continue;
      if (!take(array.offset + static_cast<size_t>(first * array.row_bytes), array.bytes)) return;
    }
  }
}

}  // namespace minisgl::cuda
