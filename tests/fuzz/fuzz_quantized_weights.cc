// Any text as config.json, on the first line, with any bytes after it as a safetensors file: the
// quantized matrices of a layer are refused with one readable line, or every weight can be read.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "weights/stored_matrix.h"

namespace {

using namespace minisgl;

void CheckOneLine(const Status& status) {
  const std::string& message = status.message();
  MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
  MINISGL_CHECK(status.code() == StatusCode::kBadInput, "code {}", static_cast<int>(status.code()));
}

DType DTypeNamed(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"BF16", DType::kBF16},    {"F16", DType::kF16},      {"F32", DType::kF32},
      {"F8_E4M3", DType::kE4M3}, {"F8_E8M0", DType::kE8M0}, {"I8", DType::kI8},
      {"I32", DType::kI32},      {"I64", DType::kI64}};
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return DType::kU8;
}

// Each tensor has memory of its own, so that a sanitizer sees reads past its end.
struct Tensors {
  std::vector<std::vector<std::byte>> memory;
  std::map<std::string, TensorView> views;
};

Result<Tensors> ReadTensors(std::string_view text) {
  const std::span bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
  uint64_t data_begin = 0;
  MINISGL_ASSIGN_OR_RETURN(const auto entries,
                           SafetensorsFile::ParseHeader(bytes, "file", &data_begin));
  Tensors tensors;
  for (const auto& [name, entry] : entries) {
    const auto part = bytes.subspan(data_begin + entry.begin, entry.end - entry.begin);
    TensorView view = {nullptr, DTypeNamed(entry.dtype_name), entry.shape};
    if (view.num_bytes() != part.size()) continue;  // of another type
    tensors.memory.emplace_back(part.begin(), part.end());
    view.data = tensors.memory.back().data();
    tensors.views[name] = view;
  }
  return tensors;
}

void ReadWeights(const WeightTensor& matrix) {
  const Status numbers = matrix.CheckNumbers();
  if (!numbers.ok()) return CheckOneLine(numbers);
  std::vector<float> row(static_cast<size_t>(matrix.num_in()));
  for (int64_t out = 0; out < matrix.num_out(); ++out) {
    matrix.ReadRow(out, row.data());
    const bool is_number =
        std::all_of(row.begin(), row.end(), [](float weight) { return weight == weight; });
    MINISGL_CHECK(is_number || matrix.quantized() == nullptr, "a weight is no number");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return 0;
  const auto config = ParseModelConfig(std::string(text.substr(0, line)), "config.json");
  if (!config.ok()) {
    CheckOneLine(config.status());
    return 0;
  }
  auto tensors = ReadTensors(text.substr(line + 1));
  if (!tensors.ok()) return 0;
  const auto checkpoint = Checkpoint::FromViews(std::move(tensors->views), nullptr, "memory");
  for (const weights::TensorSpec& spec : weights::LayerTensors(*config, 0)) {
    if (spec.dims.size() < 2) continue;
    const auto matrix = weights::FindMatrix(*config, *checkpoint, spec, spec.index);
    if (matrix.ok()) {
      ReadWeights(matrix->weights);
    } else {
      CheckOneLine(matrix.status());
    }
  }
  return 0;
}
