// Rows of codes in device memory, as kernels read them (coded_weights.cuh). The forms:
// minisgl/tensor/code_form.h.
//
// Lines: a row's codes are lines of 64 bytes. A line has groups of 32 inputs, four of them if codes
// have 4 or 6 bits and two if they have 8, and lane q of four has 16 bytes of it: for each group
// the codes of inputs 8 q to 8 q + 7. These are what the lane passes to the tensor cores
// (gemv_parts.h). Of 4 bits a group is a word, whose nibble s has input 2 s, and nibble s + 4 input
// 2 s + 1: a shift and a mask give the codes of two neighbours in the halves of a word. Upper bits
// of codes of 6 bits are 8 bytes of a lane for each line, a word for two groups: bits 2 s of the
// halves of group j are shifted by 8 (j % 2).
//
// Order: the groups of a line are neighbours, or those that a warp of a product takes one after
// another (CodeOrder).
#pragma once

#include <bit>
#include <cstdint>

#include "minisgl/base/host_device.h"
#include "minisgl/tensor/code_kinds.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cuda {

inline constexpr int kCodeGroup = 32;  // inputs of a group of a line
inline constexpr int kLineLanes = 4;
inline constexpr int kLaneCodes = 8;       // of a lane in a group
inline constexpr int kCodeNumbers = 16;    // of codes of 4 bits
inline constexpr int kCodeLineBytes = 64;  // of codes

// Groups of a line.
MINISGL_HOST_DEVICE constexpr int LineGroupsOf(RowCodes kind) {
  return kind == RowCodes::kTable4 || kind == RowCodes::kInt6 ? 4 : 2;
}

// Which groups a line has: line l of `warps` neighbouring lines those of warp l, which takes `run`
// groups, then those `warps` * run further on. 1 warp: a line's groups are neighbours.
struct CodeOrder {
  int32_t warps = 1;
  int32_t run = 4;

  // True if both are powers of two, as products of tiles need them.
  bool has_shifts() const {
    return std::has_single_bit(static_cast<uint32_t>(warps)) &&
           std::has_single_bit(static_cast<uint32_t>(run));
  }
  // The group at place `j` of `line`, whose lines have `of_line` groups.
  MINISGL_HOST_DEVICE int Group(int line, int j, int of_line) const {
    if (warps == 1) return line * of_line + j;
    return line / warps * (of_line * warps) + line % warps * run + j % run +
           j / run * (warps * run);
  }
  // The line of a group, and its place there.
  MINISGL_HOST_DEVICE int Line(int group, int of_line, int* j) const {
    if (warps == 1) {
      *j = group % of_line;
      return group / of_line;
    }
    const int within = group % (of_line * warps), round = within / (warps * run);
    *j = round * run + within % run;
    return group / (of_line * warps) * warps + within / run % warps;
  }
};

struct CodedRows {
  const uint8_t* codes = nullptr;
  const uint8_t* upper = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* bases = nullptr;
  const int8_t* zeros = nullptr;          // null: all are 0
  const uint8_t* offsets = nullptr;       // null: there are none
  const uint8_t* offset_bases = nullptr;  // of steps
  RowCodes kind = RowCodes::kInt8;
  GroupScales scale_kind = GroupScales::kStored;
  DType scale_type = DType::kF32;
  bool adds_zero = false;
  CodeOrder order;
  int32_t num_in = 0;
  int32_t num_lines = 0;   // of a row
  int32_t num_groups = 0;  // of a row's scales
  int32_t group_inputs = 0;
  int32_t num_bases = 0;  // of a row
  int32_t base_groups = 1;
  // The same as powers of two; -1: they are none. A group of all inputs of a row: 31.
  int32_t group_shift = -1, base_shift = -1;
  float numbers[kCodeNumbers] = {};
};

}  // namespace minisgl::cuda
