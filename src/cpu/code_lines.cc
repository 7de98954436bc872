// See code_lines.h.
#include "cpu/code_lines.h"

#include <algorithm>

namespace minisgl::cpu {

CodeLines::CodeLines(const CodedMatrix& matrix, int64_t group)
    : matrix_(matrix), first_panel_(group * kLinePanels) {
  num_panels_ = std::min(kLinePanels, matrix.num_panels() - first_panel_);
  codes_ = matrix.line(first_panel_ * kPanelWidth, 0);
  panel_step_ = kPanelWidth * matrix.line_bytes();
  line_step_ = num_panels_ * panel_step_;
  scales_ = matrix.scales(first_panel_);
  scale_step_ = matrix.scale_bytes();
  scale_bytes_ = kPanelWidth * static_cast<int64_t>(DTypeBytes(matrix.scale_type));
  zeros_ = matrix.zeros(first_panel_);
  zero_step_ = matrix.num_groups() * kPanelWidth;
  // A group that is not of whole steps is the only one.
  group_steps_ = static_cast<uint32_t>((matrix.group_inputs + kGroupStep - 1) / kGroupStep);
  last_group_ = static_cast<uint32_t>(matrix.num_groups() - 1);
}

}  // namespace minisgl::cpu
