// A group of outputs of a matrix in CodeOrder::kLines (coded_matrix.h): where its codes, and the
// groups of its inputs, are. Refers to the matrix, whose data it does not keep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/coded_matrix.h"

namespace minisgl::cpu {

class CodeLines {
 public:
  CodeLines(const CodedMatrix& matrix, int64_t group);

  const CodedMatrix& matrix() const { return matrix_; }
  int64_t first_panel() const { return first_panel_; }
  int64_t num_panels() const { return num_panels_; }
  // Of the first output of a panel; the others of the panel follow.
  const std::byte* codes(int64_t panel, int64_t line) const {
    return codes_ + line * line_step_ + panel * panel_step_;
  }
  // By a division of 32 bits, which takes a third of the time.
  int64_t GroupOf(int64_t input) const {
    const uint32_t group = static_cast<uint32_t>(input / kGroupStep) / group_steps_;
    return group < last_group_ ? group : last_group_;
  }

 private:
  static constexpr int64_t kGroupStep = 8;
  const CodedMatrix& matrix_;
  int64_t first_panel_, num_panels_;
  const std::byte* codes_;
  int64_t line_step_, panel_step_;  // bytes
  uint32_t group_steps_, last_group_;
};

}  // namespace minisgl::cpu
