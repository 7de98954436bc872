// Operations of a decoder whose rows may go through adapters: those of a device, with the products
// of low rank beside the products that an adapter changes.
//
// Rows without an adapter get exactly what the device's operations give: a product that is changed
// for other rows runs in its parts, which give the same bits as the fused one (Ops::FusedLinear).
// Used by the decoder's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "minisgl/ops.h"
#include "minisgl/plan/adapter_slot.h"
#include "model/adapter_pack.h"
#include "model/forwarding_ops.h"

namespace minisgl::model {

// The rows of such a product, of what is behind the elements that it copies.
HeadRows RowsOfHeads(const HeadLinearParams& params);

class AdapterOps final : public ForwardingOps {
 public:
  // `ops`: of a host, with LowRank. `embedding`: the decoder's table of the vocabulary.
  AdapterOps(Ops* ops, const Rank& rank, std::vector<AdapterSite> sites, const Matrix* embedding);

  const std::vector<AdapterSite>& sites() const { return sites_; }
  // Null: the slot is empty.
  void SetAdapter(AdapterSlot slot, std::shared_ptr<const PackedAdapter> adapter);

  // The operations that follow are over these tokens. `spans`: of the pass, with slots that have an
  // adapter.
  void BeginTokens(std::span<const AdapterSpan> spans);
  // Or over the listed ones of them (null: the first `count`).
  void BeginRows(const int32_t* tokens, int32_t count);

  void Linear(const LinearParams& params) override;
  void FusedLinear(const FusedLinearParams& params) override;
  void Embedding(const EmbeddingParams& params) override;
  void ExpertLinear(const ExpertLinearParams& params) override;
  void HeadLinear(const HeadLinearParams& params) override;

 private:
  // The slot's adapter and its rows of the operations that follow.
  struct Active {
    const PackedAdapter* adapter = nullptr;
    AdapterSlot slot = kNoAdapter;
    std::vector<int32_t> rows;
  };

  // The site of a matrix, or of experts; -1: none that an adapter of the step changes.
  int32_t ChangedSite(const void* matrices) const;
  void AddRow(AdapterSlot slot, int32_t row);
  float* Inner(int64_t count);
  void RunWhole(const LinearParams& params, const PackedProduct& product,
                std::span<const int32_t> rows);
  void ReplaceEmbeddings(const EmbeddingParams& params, const Active& active);
  void AddEmbeddings(const EmbeddingParams& params, const Active& active);
  // Lists the rows of each expert that `active` changes.
  void ListExpertRows(const ExpertLinearParams& params, const Active& active, size_t site);

  const Rank rank_;
  const std::vector<AdapterSite> sites_;
  const Matrix* const embedding_;
  std::unordered_map<const void*, int32_t> site_of_;
  std::vector<std::shared_ptr<const PackedAdapter>> slots_;
  std::vector<AdapterSpan> spans_;  // of the pass
  std::vector<Active> active_;      // the first num_active_; the others keep memory
  size_t num_active_ = 0;
  // Memory of operations:
  std::vector<LowRankGroup> groups_;
  std::vector<float> inner_;
  std::vector<int32_t> tokens_, expert_rows_, expert_begins_;
};

}  // namespace minisgl::model
