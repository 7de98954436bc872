// See code_lines.h.
#include "cpu/code_lines.h"

#include <algorithm>
#include <bit>

namespace minisgl::cpu {

CodeLines::CodeLines(const CodedMatrix& matrix, int64_t group)
    : matrix_(matrix), factors_(matrix), first_panel_(group * kLinePanels) {
  num_panels_ = std::min(kLinePanels, matrix.num_panels() - first_panel_);
  codes_ = matrix.line(first_panel_ * kPanelWidth, 0);
  panel_step_ = kPanelWidth * matrix.line_bytes();
  line_step_ = num_panels_ * panel_step_;
  // A group that is not of whole steps is the only one.
  group_steps_ = static_cast<uint32_t>((matrix.group_inputs + kGroupStep - 1) / kGroupStep);
  group_shift_ = std::has_single_bit(group_steps_) ? std::countr_zero(group_steps_) : -1;
  last_group_ = static_cast<uint32_t>(matrix.num_groups() - 1);
}

}  // namespace minisgl::cpu
