// The architectures this program knows: which tensors each is made of, under which names and in
// which shapes.
//
// A decoder is built from roles, never from names, so an architecture of the same build with other
// names is one more entry of the list in architectures.cc. Shapes are written in symbols:
//   V vocabulary, D hidden width, I feed-forward width, E one head, H*E all query heads, HKV*E all
//   key (or value) heads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/ops_params.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

enum class TensorRole : uint8_t {
  kEmbedding,  // once a model
  kFinalNorm,
  kHead,           // left out where the embedding serves as the head
  kAttentionNorm,  // once a layer
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kFeedForwardNorm,
  kGate,
  kUp,
  kDown,
  kQueryBias,  // where an architecture has them
  kKeyBias,
  kValueBias,
  kQueryNorm,  // of each head
  kKeyNorm,
};
inline constexpr int kNumTensorRoles = static_cast<int>(TensorRole::kKeyNorm) + 1;

struct TensorSpec {
  TensorRole role;
  std::string_view name;  // "{}" stands for the layer
  const char* rows;       // symbol
  const char* columns;    // symbol; null for a vector

  bool is_vector() const { return columns == nullptr; }
  bool is_norm() const;
};

struct Architecture {
  std::string_view name;  // as `architectures` of config.json spells it
  std::span<const TensorSpec> model_tensors;
  std::span<const TensorSpec> layer_tensors;
  // Tensors that some files carry and nothing needs: names that end so are passed over.
  std::span<const std::string_view> ignored_suffixes;
  Activation activation;
};

// kBadInput naming the architecture, and those there are, where `name` is none of them.
Result<const Architecture*> FindArchitecture(std::string_view name);

// The name of `spec` in layer `layer` (unused by a tensor of the whole model).
std::string TensorName(const TensorSpec& spec, int32_t layer);

// The size that `symbol` stands for; REQUIRES one of the symbols above. Nothing where it is past
// 2^63.
std::optional<int64_t> SymbolSize(const ModelConfig& config, std::string_view symbol);

// Whether a file must hold `spec`.
bool IsRequired(const ModelConfig& config, const TensorSpec& spec);

// Every tensor that the files of a model of `config` must hold. kBadInput for an architecture that
// is not known, and for sizes past 2^63.
struct RequiredTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool is_norm = false;
};
Result<std::vector<RequiredTensor>> RequiredTensors(const ModelConfig& config);

}  // namespace minisgl
