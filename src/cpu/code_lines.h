// A group of outputs of a matrix in CodeOrder::kLines (coded_matrix.h): where its codes, and the
// groups of its inputs, are. Refers to the matrix, whose data it does not keep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/coded_matrix.h"
#include "cpu/factor_layout.h"

namespace minisgl::cpu {

class CodeLines {
 public:
  CodeLines(const CodedMatrix& matrix, int64_t group);

  const CodedMatrix& matrix() const { return matrix_; }
  const FactorLayout& factors() const { return factors_; }
  int64_t first_panel() const { return first_panel_; }
  int64_t num_panels() const { return num_panels_; }
  // The codes of the first output of a panel; the panel's other outputs follow.
  const std::byte* codes(int64_t panel, int64_t line) const {
    return codes_ + line * line_step_ + panel * panel_step_;
  }
  // By a shift, where groups have a power of two of inputs; else by a division of 32 bits, which
  // takes a third of the time of one of 64.
  int64_t GroupOf(int64_t input) const {
    const auto step = static_cast<uint32_t>(input / kGroupStep);
    const uint32_t group = group_shift_ >= 0 ? step >> group_shift_ : step / group_steps_;
    return group < last_group_ ? group : last_group_;
  }

 private:
  static constexpr int64_t kGroupStep = 8;
  const CodedMatrix& matrix_;
  const FactorLayout factors_;
  int64_t first_panel_, num_panels_;
  const std::byte* codes_;
  int64_t line_step_, panel_step_;  // bytes
  uint32_t group_steps_, last_group_;
  int group_shift_;  // log2 of group_steps_; -1: it is no power of two
};

}  // namespace minisgl::cpu
