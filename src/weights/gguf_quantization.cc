// How the matrices of a GGUF file are quantized, as their types say.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "weights/gguf_model.h"

namespace minisgl::weights {
namespace {

int64_t FactorInputs(const BlockFormat& format) {
  return format.codes.read_steps == nullptr ? 0 : format.block_elements;
}

// The scheme of a matrix of blocks.
QuantScheme SchemeOf(const WeightTensor& matrix) {
  const QuantizedWeights& its = *matrix.quantized();
  const BlockFormat& format = *matrix.blocks();
  std::string why;
  const auto forms = FormsOf({&matrix, 1}, &why);
  return {.layout = QuantLayout::kRowBlocks,
          .bits = its.codes.bits,
          .group_inputs = its.group_inputs,
          .has_offsets = matrix.has_offsets(),
          .factor_inputs = FactorInputs(format),
          .block_inputs = format.is_compact ? format.block_elements : 0,
          .block_bytes = format.is_compact ? format.block_bytes : 0,
          .block_form = forms ? (*forms)[0].form : CodeForm()};
}

}  // namespace

QuantizationConfig GgufQuantization(const std::vector<GgufModelTensor>& tensors) {
  QuantizationConfig config;
  StoredMatrices matrices;
  matrices.experts_alike = true;
  for (const GgufModelTensor& tensor : tensors) {
    if (!tensor.matrix) continue;
    if (tensor.matrix->quantized() == nullptr) {
      matrices.dense.push_back(tensor.name);
      continue;
    }
    const QuantScheme scheme = SchemeOf(*tensor.matrix);
    matrices.scheme_of.emplace(tensor.name, scheme);
    const auto known = std::find(config.schemes.begin(), config.schemes.end(), scheme);
    if (known == config.schemes.end()) config.schemes.push_back(scheme);
  }
  if (config.schemes.empty()) return QuantizationConfig();
  std::sort(matrices.dense.begin(), matrices.dense.end());
  config.matrices = std::make_shared<const StoredMatrices>(std::move(matrices));
  config.method = config.text = "gguf";
  return config;
}

}  // namespace minisgl::weights
