// An adapter as a rank of a decoder keeps it: for each product of the decoder the low-rank matrices
// beside it, cut and ordered as the product's weights are.
//
// The decoder joins products that the reference has one by one (queries, keys and values; gate and
// up), so that a product may have several parts, of ranks of their own. Factors of DoRA are applied
// to B and to what the product gave: y = g (W x + b) + (g B) (s A x) + (b' - g b), where g = m / n.
// Low-rank matrices have the values of the file: in bf16 if the file has it, else in f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "minisgl/adapter_params.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/rank_cut.h"

namespace minisgl::model {

// A part of a product: what one stored matrix gives it.
struct SitePart {
  weights::TensorRole role;      // under which changes of it are listed (FittedChanges)
  weights::TensorRole stored;    // of its tensor: another for a tied head
  std::vector<int64_t> outputs;  // its stored outputs that the rank has, in the decoder's order
  Span inputs;                   // and inputs
  bool is_turned = false;        // the product has the matrix turned: outputs are its inputs

  int64_t num_out() const { return is_turned ? inputs.count : std::ssize(outputs); }
};

// A product of the decoder. One of the two pointers is set; they are those of its parameters.
struct AdapterSite {
  const Matrix* matrix = nullptr;
  const ExpertMatrices* experts = nullptr;
  int32_t layer = -1;
  std::vector<SitePart> parts;
  bool is_sum = false;    // it gives a part of a sum over ranks
  bool by_heads = false;  // `experts` are heads (HeadLinear), each with a part of one stored matrix

  int64_t num_out() const { return matrix == nullptr ? experts->num_out : matrix->num_out; }
  int64_t num_in() const { return matrix == nullptr ? experts->num_in : matrix->num_in; }
  // The parts of an expert, or of a head; and the index of its stored matrix (FittedKey).
  std::span<const SitePart> PartsOf(int32_t expert) const {
    return by_heads ? std::span(parts).subspan(static_cast<size_t>(expert), 1) : std::span(parts);
  }
  int32_t StoredIndex(int32_t expert) const { return by_heads ? 0 : expert; }
};

// The products of `weights`, which are those of `rank`. `config`: of the whole model. Their
// pointers are into `weights`.
std::vector<AdapterSite> AdapterSites(const ModelConfig& config, const Rank& rank,
                                      const Checkpoint& checkpoint, const ModelWeights& weights,
                                      Ops* ops);

// Weights in place of the base's, which give outputs [first_out, ...) of a product.
struct WholePart {
  Matrix matrix;
  int64_t first_out = 0;
};

struct PackedProduct {
  LowRankMatrices matrices;  // into the members below
  std::vector<LowRankPart> parts;
  std::vector<WholePart> whole;
  DeviceArray<std::byte> a, b;
  DeviceArray<float> factor, offset;
};

struct PackedEmbedding {
  TensorView whole;                              // [V, D]; without data: the base's
  TensorView rows;                               // [tokens, D] in place of the base's
  std::unordered_map<TokenId, int64_t> row_of;   // of those
  TensorView a;                                  // [rank, V]
  std::unique_ptr<const PackedProduct> product;  // its second matrix; null: none
};

struct PackedAdapter {
  std::vector<std::unique_ptr<const PackedProduct>> products;  // [sites]; null: no change
  std::vector<std::vector<std::unique_ptr<const PackedProduct>>> experts;  // [sites][experts]
  std::unique_ptr<const PackedEmbedding> embedding;                        // null: no change
  std::shared_ptr<const Adapter> source;                                   // keeps tensors
  uint64_t num_bytes = 0;
  std::vector<std::byte>
      image;  // in place of all above but `source`: what a slot of a device holds
};

// True for an output head that is the embedding, too: rows of single tokens are also its outputs.
bool IsTiedHead(const AdapterSite& site);

// Errors of CheckAdapterFits; kOutOfMemory; errors of reading the weights that DoRA needs.
Result<std::shared_ptr<const PackedAdapter>> PackAdapter(
    const ModelConfig& config, const Rank& rank, const Checkpoint& checkpoint,
    const std::vector<AdapterSite>& sites, std::shared_ptr<const Adapter> adapter, Ops* ops);

}  // namespace minisgl::model
