// See slot_adapters.h.
#include "model/slot_adapters.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "model/adapter_ops.h"
#include "model/adapter_pack.h"
#include "model/forwarding_ops.h"
#include "model/slot_image.h"

namespace minisgl::model {
namespace {

// Packs in the memory of the host, on any thread: matrices are rows of bf16, or of f32.
class HostPacking final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    constexpr size_t kAlignment = 64;
    const size_t size = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const memory = std::aligned_alloc(kAlignment, std::max(size, kAlignment));
    if (memory == nullptr) return Status(StatusCode::kOutOfMemory, "no memory for an adapter");
    std::memset(memory, 0, std::max(size, kAlignment));
    return std::shared_ptr<void>(memory, std::free);
  }
  Status Upload(void* dst, const void* src, size_t num_bytes) override {
    if (num_bytes > 0) std::memcpy(dst, src, num_bytes);
    return Status();
  }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    const WeightTensor& from = parts[0];
    const DType dtype = format.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
    Matrix matrix = {.num_out = from.num_out(), .num_in = from.num_in(), .dtype = dtype};
    const auto width = static_cast<size_t>(matrix.num_in);
    MINISGL_ASSIGN_OR_RETURN(
        const std::shared_ptr<void> memory,
        HostPacking::Allocate(static_cast<size_t>(matrix.num_out) * width * DTypeBytes(dtype)));
    std::vector<float> row(width);
    for (int64_t out = 0; out < matrix.num_out; ++out) {
      from.ReadRow(out, row.data());
      const auto begin = static_cast<size_t>(out) * width;
      for (size_t i = 0; i < width; ++i) {
        if (dtype == DType::kBF16) {
          static_cast<uint16_t*>(memory.get())[begin + i] = FloatToBf16(row[i]);
        } else {
          static_cast<float*>(memory.get())[begin + i] = row[i];
        }
      }
    }
    matrix.storage = memory;
    return matrix;
  }
};

// Runs the device's operations, and behind each product that adapters change the products of low
// rank.
class SlotOps final : public ForwardingOps {
 public:
  SlotOps(Ops* ops, const Rank& rank, const std::vector<AdapterSite>& sites,
          const SlotLayout& layout, const Matrix* embedding)
      : ForwardingOps(ops), is_first_rank_(rank.is_first()), layout_(layout), table_(embedding) {
    for (size_t i = 0; i < sites.size(); ++i) {
      if (!layout.sites[i].is_changed) continue;
      const AdapterSite& site = sites[i];
      site_of_.emplace(
          site.matrix == nullptr ? static_cast<const void*>(site.experts) : site.matrix,
          &layout.sites[i]);
    }
  }

  // `inner`: of so many floats as InnerFloats says.
  void UseSlots(const AdapterSlots& slots, DeviceArray<float> inner) {
    slots_ = slots;
    inner_ = std::move(inner);
  }
  void Begin(const int32_t* slot_of, const int32_t* tokens) {
    slots_.slot_of = slot_of;
    tokens_ = tokens;
  }

  void Linear(const LinearParams& params) override {
    ops_->Linear(params);
    const SlotSite* const site = ChangedSite(params.weight);
    if (site == nullptr) return;
    ops_->SlotLowRank({.x = params.x,
                       .out = params.out,
                       .slots = slots_,
                       .first_product = site->first_product,
                       .tokens = tokens_,
                       .num_rows = params.num_tokens,
                       .num_in = params.weight->num_in,
                       .num_out = params.weight->num_out,
                       .out_stride = params.out_stride,
                       .max_ranks = site->max_ranks,
                       .has_whole = site->has_whole,
                       .inner = inner_.data()});
  }
  void FusedLinear(const FusedLinearParams& params) override {
    if (ChangedSite(params.linear.weight) == nullptr) return ops_->FusedLinear(params);
    RunParts(params);
  }
  void ExpertLinear(const ExpertLinearParams& params) override {
    ops_->ExpertLinear(params);
    const SlotSite* const site = ChangedSite(params.weights);
    if (site == nullptr) return;
    ops_->SlotLowRank({.x = params.x,
                       .out = params.out,
                       .slots = slots_,
                       .first_product = site->first_product,
                       .experts = params.experts,
                       .num_rows = params.num_tokens * params.num_chosen,
                       .num_in = params.weights->num_in,
                       .num_out = params.weights->num_out,
                       .rows_per_input = params.x_per_choice ? 1 : params.num_chosen,
                       .rows_per_token = params.num_chosen,
                       .max_ranks = site->max_ranks,
                       .inner = inner_.data()});
  }
  void HeadLinear(const HeadLinearParams& params) override {
    ops_->HeadLinear(params);
    const SlotSite* const site = ChangedSite(params.weights);
    if (site == nullptr) return;
    ops_->SlotLowRank({.x = params.x.At(params.num_copied),
                       .out = params.out.At(params.num_copied),
                       .slots = slots_,
                       .first_product = site->first_product,
                       .heads = RowsOfHeads(params),
                       .num_rows = params.num_tokens * params.weights->num_experts,
                       .num_in = params.weights->num_in,
                       .num_out = params.weights->num_out,
                       .max_ranks = site->max_ranks,
                       .inner = inner_.data()});
  }
  // Ranks add what they look up; the first one has what adapters add.
  void Embedding(const EmbeddingParams& params) override {
    ops_->Embedding(params);
    if (slots_.slot_of == nullptr || params.table != table_ || !layout_.has_embedding) return;
    const SlotSite& site = layout_.embedding;
    const bool adds = site.is_changed && is_first_rank_;
    ops_->SlotEmbeddings({.ids = params.ids,
                          .out = params.out,
                          .inner = adds ? inner_.data() : nullptr,
                          .slots = slots_,
                          .embedding = layout_.embedding_place(),
                          .num_tokens = params.num_tokens,
                          .width = params.table->num_in,
                          .max_ranks = site.max_ranks,
                          .scale = params.scale,
                          .is_first_rank = is_first_rank_});
    if (!adds) return;
    ops_->SlotLowRank({.x = nullptr,
                       .out = params.out,
                       .slots = slots_,
                       .first_product = site.first_product,
                       .num_rows = params.num_tokens,
                       .num_out = params.table->num_in,
                       .max_ranks = site.max_ranks,
                       .inner = inner_.data()});
  }

 private:
  // Null: no adapter changes it, or no row has one.
  const SlotSite* ChangedSite(const void* matrices) const {
    if (slots_.slot_of == nullptr) return nullptr;
    const auto found = site_of_.find(matrices);
    return found == site_of_.end() ? nullptr : found->second;
  }

  const bool is_first_rank_;
  const SlotLayout& layout_;
  const Matrix* const table_;
  std::unordered_map<const void*, const SlotSite*> site_of_;
  AdapterSlots slots_;
  const int32_t* tokens_ = nullptr;  // of the rows; null: they are the step's tokens
  DeviceArray<float> inner_;
};

class SlotAdapters final : public AdaptedProducts {
 public:
  SlotAdapters(const WholeModel& whole, const DecoderOptions& options, const ModelWeights& weights,
               Ops* ops)
      : config_(whole.config),
        rank_(options.rank),
        max_tokens_(options.max_step_tokens),
        max_logit_rows_(options.max_logit_rows),
        device_ops_(ops),
        sites_(AdapterSites(config_, rank_, whole.checkpoint, weights, ops)),
        layout_(EmptyLayout(sites_)),
        fits_(FillLayout(options.adapters)),
        ops_(ops, rank_, sites_, layout_, &weights.embedding) {}

  Ops* ops() override { return &ops_; }
  void BeginTokens(const ForwardInput& input) override { ops_.Begin(input.slot_of, nullptr); }
  void BeginRows(const ForwardInput& input) override {
    ops_.Begin(input.slot_of, input.logit_tokens);
  }

  Result<std::shared_ptr<const PackedAdapter>> Pack(std::shared_ptr<const Adapter> adapter,
                                                    const Checkpoint& checkpoint) const override {
    HostPacking packing(device_ops_);
    MINISGL_ASSIGN_OR_RETURN(
        const std::shared_ptr<const PackedAdapter> packed,
        PackAdapter(config_, rank_, checkpoint, sites_, std::move(adapter), &packing));
    auto image = std::make_shared<PackedAdapter>();
    image->image = MakeSlotImage(config_, layout_, *packed);
    image->num_bytes = image->image.size();
    image->source = packed->source;
    MINISGL_CHECK(std::ssize(image->image) <= layout_.slot_bytes, "{} bytes for a slot of {}",
                  image->image.size(), layout_.slot_bytes);
    return std::shared_ptr<const PackedAdapter>(std::move(image));
  }

  int64_t slot_bytes() const override { return layout_.slot_bytes; }
  Status UseSlots(const std::byte* memory) override {
    MINISGL_RETURN_IF_ERROR(fits_);
    MINISGL_ASSIGN_OR_RETURN(
        auto inner, DeviceArray<float>::Make(device_ops_, {static_cast<uint64_t>(InnerFloats())}));
    ops_.UseSlots({.memory = memory, .slot_bytes = layout_.slot_bytes}, std::move(inner));
    return Status();
  }
  std::span<const std::byte> SlotImage(const PackedAdapter& adapter) const override {
    return adapter.image;
  }

 private:
  Status FillLayout(std::span<const std::shared_ptr<const Adapter>> adapters) {
    for (const auto& adapter : adapters) {
      MINISGL_RETURN_IF_ERROR(AddToLayout(config_, sites_, *adapter, &layout_));
    }
    return Status();
  }
  int64_t InnerFloats() const {
    int64_t most = max_tokens_ * layout_.embedding.max_ranks;
    for (size_t i = 0; i < sites_.size(); ++i) {
      int64_t of_token = sites_[i].experts == nullptr ? 1 : config_.experts.num_chosen;
      if (sites_[i].by_heads) of_token = sites_[i].experts->num_experts;
      const int64_t rows = sites_[i].layer < 0 ? max_logit_rows_ : max_tokens_ * of_token;
      most = std::max(most, rows * layout_.sites[i].max_ranks);
    }
    return most;
  }

  const ModelConfig config_;
  const Rank rank_;
  const int64_t max_tokens_, max_logit_rows_;
  Ops* const device_ops_;
  const std::vector<AdapterSite> sites_;
  SlotLayout layout_;
  const Status fits_;
  SlotOps ops_;
};

}  // namespace

std::unique_ptr<AdaptedProducts> MakeSlotAdapters(const WholeModel& whole,
                                                  const DecoderOptions& options,
                                                  const ModelWeights& weights, Ops* ops) {
  return std::make_unique<SlotAdapters>(whole, options, weights, ops);
}

}  // namespace minisgl::model
