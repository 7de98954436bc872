// See coded_matrix.h.
#include "coded_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "minisgl/base/load_bytes.h"

namespace minisgl::cuda {
namespace {

constexpr size_t kAlignment = 256;

bool HasNibbles(const CodeForm& form) { return form.line_inputs() == 2 * CodeForm::kLineBytes; }

// The n of 2^n; -1: of another number.
int32_t ShiftOf(int32_t number) {
  const auto bits = static_cast<uint32_t>(number);
  return std::has_single_bit(bits) ? std::countr_zero(bits) : -1;
}

// Calls access(first input, byte of lines, byte of upper, shift there) for each lane's eight codes.
template <typename Access>
void ForLanes(const CodeForm& form, const CodeOrder& order, int64_t num_in, const Access& access) {
  const int of_line = static_cast<int>(form.line_inputs() / kCodeGroup);
  const int64_t width = HasNibbles(form) ? 4 : 8;  // bytes of eight codes
  for (int64_t first = 0; first < num_in; first += kCodeGroup) {
    int j = 0;
    const int64_t line = order.Line(static_cast<int>(first / kCodeGroup), of_line, &j);
    for (int64_t lane = 0; lane < kLineLanes; ++lane) {
      const int64_t at = line * CodeForm::kLineBytes + lane * 16;
      access(first + lane * kLaneCodes, at + j * width, at / 2 + j / 2 * 4, j % 2 * 8);
    }
  }
}

// The lowest `kBits` bits of eight bytes, those of inputs 2 s and 2 s + 1 in the halves of a word.
template <int kBits>
uint32_t JoinPairs(uint64_t bytes) {
  uint32_t word = 0;
  for (int s = 0; s < 4; ++s, bytes >>= 16) {
    const auto pair = static_cast<uint32_t>((bytes & 0xFF) | (bytes & 0xFF00) << 8);
    word |= pair << (kBits * s);
  }
  return word;
}

template <int kBits>
uint64_t SplitPairs(uint32_t word) {
  constexpr uint64_t kMask = (1 << kBits) - 1;
  uint64_t bytes = 0;
  for (int s = 0; s < 4; ++s) {
    const uint64_t low = word >> (kBits * s) & kMask, high = word >> (16 + kBits * s) & kMask;
    bytes |= (low | high << 8) << (16 * s);
  }
  return bytes;
}

}  // namespace

CodeLayout CodeLayout::Make(const CodeForm& form, int64_t num_rows, int64_t num_in, size_t begin) {
  CodeLayout layout;
  size_t at = begin;
  const auto take = [&](int64_t row_bytes) {
    at = (at + kAlignment - 1) / kAlignment * kAlignment;
    const size_t first = at;
    at += static_cast<size_t>(row_bytes * num_rows);
    return first;
  };
  layout.codes = take(form.code_bytes(num_in));
  layout.upper = take(form.upper_bytes(num_in));
  layout.scales = take(form.scale_bytes(num_in));
  layout.bases = take(form.base_bytes(num_in));
  layout.zeros = take(form.zero_bytes(num_in));
  layout.offsets = take(form.has_offsets ? form.scale_bytes(num_in) : 0);
  layout.offset_bases = take(form.has_offsets ? form.base_bytes(num_in) : 0);
  layout.end = at;
  return layout;
}

CodedRows MakeCodedRows(const CodedRun& run, int64_t num_in, const CodeOrder& order,
                        const void* memory) {
  const auto* const bytes = static_cast<const uint8_t*>(memory);
  const CodeForm& form = run.form;
  const CodeLayout& layout = run.layout;
  CodedRows rows = {
      .codes = bytes + layout.codes,
      .upper = bytes + layout.upper,
      .scales = bytes + layout.scales,
      .bases = bytes + layout.bases,
      .zeros = form.has_zeros ? reinterpret_cast<const int8_t*>(bytes + layout.zeros) : nullptr,
      .offsets = form.has_offsets ? bytes + layout.offsets : nullptr,
      .offset_bases = bytes + layout.offset_bases,
      .kind = form.codes,
      .scale_kind = form.scales,
      .scale_type = form.scale_type,
      .adds_zero = form.adds_zero,
      .order = order,
      .num_in = static_cast<int32_t>(num_in),
      .num_lines = static_cast<int32_t>(form.num_lines(num_in)),
      .num_groups = static_cast<int32_t>(form.num_groups(num_in)),
      .group_inputs = static_cast<int32_t>(form.group_inputs),
      .num_bases = static_cast<int32_t>(form.num_bases(num_in)),
      .base_groups = static_cast<int32_t>(std::max<int64_t>(form.base_groups, 1))};
  rows.group_shift = rows.num_groups == 1 ? 31 : ShiftOf(rows.group_inputs);
  rows.base_shift = ShiftOf(rows.base_groups);
  std::copy(form.numbers.begin(), form.numbers.end(), rows.numbers);
  return rows;
}

void WriteLines(const CodeForm& form, const CodeOrder& order, const uint8_t* codes, int64_t num_in,
                std::byte* lines, std::byte* upper) {
  std::memset(lines, 0, static_cast<size_t>(form.code_bytes(num_in)));
  std::memset(upper, 0, static_cast<size_t>(form.upper_bytes(num_in)));
  const bool has_nibbles = HasNibbles(form), has_upper = form.codes == RowCodes::kInt6;
  ForLanes(form, order, num_in, [&](int64_t input, int64_t at, int64_t upper_at, int shift) {
    const int64_t count = std::min<int64_t>(kLaneCodes, num_in - input);
    if (count <= 0) return;
    uint64_t eight = 0;
    std::memcpy(&eight, codes + input, static_cast<size_t>(count));
    if (!has_nibbles) {
      std::memcpy(lines + at, &eight, sizeof(eight));
      return;
    }
    const uint32_t word = JoinPairs<4>(eight & 0x0F0F0F0F0F0F0F0F);
    std::memcpy(lines + at, &word, sizeof(word));
    if (!has_upper) return;
    uint32_t tops;
    std::memcpy(&tops, upper + upper_at, sizeof(tops));
    tops |= JoinPairs<2>(eight >> 4 & 0x0303030303030303) << shift;
    std::memcpy(upper + upper_at, &tops, sizeof(tops));
  });
}

void ReadLines(const CodeForm& form, const CodeOrder& order, const std::byte* lines,
               const std::byte* upper, int64_t num_in, uint8_t* codes) {
  const bool has_nibbles = HasNibbles(form), has_upper = form.codes == RowCodes::kInt6;
  ForLanes(form, order, num_in, [&](int64_t input, int64_t at, int64_t upper_at, int shift) {
    const int64_t count = std::min<int64_t>(kLaneCodes, num_in - input);
    if (count <= 0) return;
    uint64_t eight = 0;
    if (has_nibbles) {
      eight = SplitPairs<4>(LoadBytes<uint32_t>(lines + at));
      if (has_upper) {
        eight |= SplitPairs<2>(LoadBytes<uint32_t>(upper + upper_at) >> shift) << 4;
      }
    } else {
      eight = LoadBytes<uint64_t>(lines + at);
    }
    std::memcpy(codes + input, &eight, static_cast<size_t>(count));
  });
}

}  // namespace minisgl::cuda
