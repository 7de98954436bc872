#include "cpu/factor_layout.h"

namespace minisgl::cpu {

FactorLayout::FactorLayout(const CodedMatrix& m)
    : scales(m.scales(0)),
      offsets(m.offsets(0)),
      zeros(m.zeros(0)),
      panel_bytes(m.scale_bytes()),
      panel_zeros(m.num_groups() * kPanelWidth),
      type(m.scale_type),
      steps(m.steps),
      step_bytes(m.step_bytes()) {
  while (int64_t{1} << shift < m.factor_groups) ++shift;
}

}  // namespace minisgl::cpu
