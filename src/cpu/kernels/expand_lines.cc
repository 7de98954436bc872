// Expands lines of codes (coded_matrix.h) without instructions of one processor, slowly: for tests
// of products of tiles on any machine. Quads of codes, too.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/kernels.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kBf16Bytes = 2;

// Writes the weights of output `out`, rounded; 0 if there is no such output.
void RoundOutput(const CodedMatrix& m, int64_t out, std::vector<uint16_t>* rounded) {
  std::fill(rounded->begin(), rounded->end(), uint16_t{0});
  if (out >= m.num_out) return;
  std::vector<float> row(static_cast<size_t>(m.num_in));
  m.ReadRow(out, row.data());
  // As the instruction does that rounds, which takes subnormal numbers as 0.
  std::transform(row.begin(), row.end(), rounded->begin(),
                 [](float weight) { return FloatToBf16(SoftwareTiles::Flushed(weight)); });
}

// Writes a panel of bf16 (packed_matrix.h).
void WriteRounded(const CodedMatrix& m, int64_t panel, std::byte* out) {
  std::vector<uint16_t> row(static_cast<size_t>(m.num_in + m.num_in % 2));
  for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
    RoundOutput(m, panel * kPanelWidth + lane, &row);
    for (size_t pair = 0; pair < row.size() / 2; ++pair) {
      std::memcpy(out + (static_cast<int64_t>(pair) * kPanelWidth + lane) * 2 * kBf16Bytes,
                  row.data() + 2 * pair, 2 * kBf16Bytes);
    }
  }
}

void ExpandLine(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  const CodedMatrix& m = lines.matrix();
  std::vector<uint16_t> row(static_cast<size_t>((m.num_in / kLineInputs + 1) * kLineInputs));
  for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
    RoundOutput(m, (lines.first_panel() + panel) * kPanelWidth + lane, &row);
    for (int64_t tile = 0; tile * kTileInputs < kLineInputs; ++tile) {
      std::memcpy(tiles + (tile * kPanelWidth + lane) * kTileInputs * kBf16Bytes,
                  row.data() + line * kLineInputs + tile * kTileInputs, kTileInputs * kBf16Bytes);
    }
  }
}

void Transpose(const std::byte* from, int64_t from_stride, std::byte* to) {
  constexpr int64_t kSide = 16, kWordBytes = 4;
  for (int64_t row = 0; row < kSide; ++row) {
    for (int64_t i = 0; i < kSide; ++i) {
      std::memcpy(to + (i * kSide + row) * kWordBytes, from + row * from_stride + i * kWordBytes,
                  kWordBytes);
    }
  }
}

}  // namespace

LineKernels LineKernelsInSoftware() { return {.expand = ExpandLine, .transpose = Transpose}; }

void ExpandLinedPanelInSoftware(const CodedMatrix& m, int64_t panel, DType, std::byte* out) {
  WriteRounded(m, panel, out);
}

void ExpandQuadsPanel(const CodedMatrix& m, int64_t panel, DType dtype, std::byte* out) {
  if (dtype == DType::kBF16) return WriteRounded(m, panel, out);
  std::vector<float> row(static_cast<size_t>(m.num_in));
  for (int64_t lane = 0; lane < kPanelWidth && panel * kPanelWidth + lane < m.num_out; ++lane) {
    m.ReadRow(panel * kPanelWidth + lane, row.data());
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t at = i * kPanelWidth + static_cast<size_t>(lane);
      std::memcpy(out + at * sizeof(float), &row[i], sizeof(float));
    }
  }
}

}  // namespace minisgl::cpu
