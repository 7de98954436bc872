// Lines of codes, expanded: every code at scales of every size, by the processor's instructions and
// without them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

// Two panels of which an output has every code; each output has a scale of its own.
CodedMatrix AllCodes(CodeKind kind, const std::vector<float>& scales) {
  CodedMatrix m;
  m.order = CodeOrder::kLines;
  m.kind = kind;
  m.num_out = std::ssize(scales);
  m.num_in = 256;
  m.group_inputs = 256;
  std::iota(m.numbers.begin(), m.numbers.end(), -8.0f);
  auto data = AllocateZeroed(m.num_bytes());
  MINISGL_CHECK(data.ok(), "{}", data.status().message());
  m.data = *data;
  auto* const bytes = static_cast<std::byte*>(data->get());
  for (int64_t out = 0; out < m.num_out; ++out) {
    for (int64_t line = 0; line < m.num_in / kLineInputs; ++line) {
      for (int64_t i = 0; i < m.line_bytes(); ++i) {
        const int64_t code = (line * m.line_bytes() + i) % 256;
        // 0x7F and 0xFF are no numbers in e4m3.
        const bool is_nan = kind == CodeKind::kE4M3 && code % 128 == 127;
        bytes[m.LineOffset(out, line) + i] = static_cast<std::byte>(is_nan ? 0 : code);
      }
    }
    const auto offset = static_cast<size_t>(m.scales(out / kPanelWidth) - bytes) +
                        static_cast<size_t>(out % kPanelWidth) * sizeof(float);
    std::memcpy(bytes + offset, &scales[static_cast<size_t>(out)], sizeof(float));
  }
  return m;
}

// Subnormal numbers count as 0 in products, with either sign.
bool IsSame(uint16_t a, uint16_t b) {
  const float x = Bf16ToFloat(a), y = Bf16ToFloat(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  const auto flushed = [](float v) {
    return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
  };
  return std::signbit(x) == std::signbit(y) && flushed(x) == flushed(y);
}

TEST(ExpandLinesTest, TheProcessorsInstructionsGiveTheWeightsOfTheRule) {
  const std::vector<CpuTarget> targets = AvailableCpuTargets();
  if (std::find(targets.begin(), targets.end(), CpuTarget::kAmx) == targets.end()) {
    GTEST_SKIP() << "this processor has no tiles";
  }
  // The limits of tables of e4m3, and values beyond them, each in a panel of its own.
  std::vector<float> scales(16, 0.7f);
  for (const float scale :
       {0.0f, -1.5f, 1e-40f, 0x1.0p-117f, 0x1.fp-118f, 0x1.0p117f, 0x1.1p117f, 3e38f, 0x1.0p-126f,
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (int i = 0; i < 16; ++i) scales.push_back(i % 3 == 1 ? 1.1f : scale);
  }
  for (const CodeKind kind : {CodeKind::kCounting4, CodeKind::kInt8, CodeKind::kE4M3}) {
    const CodedMatrix m = AllCodes(kind, scales);
    for (int64_t group = 0; group * kLinePanels < m.num_panels(); ++group) {
      const CodeLines lines(m, group);
      for (int64_t panel = 0; panel < lines.num_panels(); ++panel) {
        for (int64_t line = 0; line < 2; ++line) {
          alignas(64) uint16_t found[4][16][32], wanted[4][16][32];
          Bf16LineKernels().expand(lines, panel, line, reinterpret_cast<std::byte*>(found));
          LineKernelsInSoftware().expand(lines, panel, line, reinterpret_cast<std::byte*>(wanted));
          for (int tile = 0; tile < 4; ++tile) {
            for (int lane = 0; lane < 16; ++lane) {
              for (int i = 0; i < 32; ++i) {
                const uint16_t a = found[tile][lane][i], b = wanted[tile][lane][i];
                ASSERT_TRUE(IsSame(a, b))
                    << "kind " << static_cast<int>(kind) << ", scale "
                    << scales[static_cast<size_t>((group * 4 + panel) * 16 + lane)] << ", input "
                    << line * kLineInputs + tile * 32 + i << ": " << a << " and " << b;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
