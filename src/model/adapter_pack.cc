// See adapter_pack.h.
#include "model/adapter_pack.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "model/adapter_fit.h"
#include "model/tensor_packer.h"

namespace minisgl::model {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// The matrices of one product while they are made.
struct ProductDraft {
  std::vector<float> a, b;
  std::vector<LowRankPart> parts;  // `b` is set at the end
  std::vector<size_t> b_begins;    // of each part
  std::vector<float> factor, offset;
  std::vector<WholePart> whole;
  bool is_bf16 = true;  // `a` and `b` have values of bf16 alone
};

// Makes what an adapter has beside the products of one layer.
class ProductMaker {
 public:
  ProductMaker(const ModelConfig& config, const Rank& rank, const Checkpoint& checkpoint,
               int32_t layer, const FittedChanges& changes, Ops* ops)
      : rank_(rank),
        checkpoint_(checkpoint),
        layer_(layer),
        changes_(changes),
        packer_(config, checkpoint, layer, rank, DType::kF32, ops),
        ops_(ops) {}

  // Null if the adapter does not change it.
  Result<std::unique_ptr<const PackedProduct>> Make(const AdapterSite& site, int32_t expert) {
    ProductDraft draft;
    int64_t first_out = 0;
    bool is_changed = false;
    for (const SitePart& part : site.PartsOf(expert)) {
      const auto found = changes_.find({layer_, part.role, site.StoredIndex(expert)});
      if (found != changes_.end()) {
        is_changed = true;
        MINISGL_RETURN_IF_ERROR(AddPart(site, part, found->second, expert, first_out, &draft));
      }
      first_out += part.num_out();
    }
    MINISGL_RETURN_IF_ERROR(AddTiedTokens(site, &is_changed, &draft));
    if (!is_changed) return std::unique_ptr<const PackedProduct>();
    if (!site.by_heads) return Finish(site.num_in(), site.num_out(), std::move(draft));
    // One of the two matrices is that of all heads.
    if (expert == 0) shared_ = DeviceArray<std::byte>();
    return Finish(site.num_in(), site.num_out(), std::move(draft),
                  site.parts[0].is_turned ? HeadsShare::kB : HeadsShare::kA);
  }

  enum class HeadsShare : uint8_t { kNothing, kA, kB };

  Result<std::unique_ptr<const PackedProduct>> Finish(int64_t num_in, int64_t num_out,
                                                      ProductDraft draft,
                                                      HeadsShare share = HeadsShare::kNothing) {
    auto product = std::make_unique<PackedProduct>();
    const DType dtype = draft.is_bf16 && draft.factor.empty() ? DType::kBF16 : DType::kF32;
    MINISGL_ASSIGN_OR_RETURN(product->a, Stored(draft.a, dtype, share == HeadsShare::kA));
    MINISGL_ASSIGN_OR_RETURN(product->b, Stored(draft.b, dtype, share == HeadsShare::kB));
    if (!draft.factor.empty()) {
      MINISGL_ASSIGN_OR_RETURN(product->factor, Upload<float>(ops_, draft.factor));
    }
    if (!draft.offset.empty()) {
      MINISGL_ASSIGN_OR_RETURN(product->offset, Upload<float>(ops_, draft.offset));
    }
    product->parts = std::move(draft.parts);
    int32_t num_ranks = 0;
    for (size_t i = 0; i < product->parts.size(); ++i) {
      product->parts[i].b = product->b.data() + draft.b_begins[i] * DTypeBytes(dtype);
      num_ranks += product->parts[i].rank;
    }
    product->whole = std::move(draft.whole);
    product->matrices = {.num_in = num_in,
                         .num_out = num_out,
                         .num_ranks = num_ranks,
                         .dtype = dtype,
                         .a = product->a.data(),
                         .parts = product->parts,
                         .factor = product->factor.data(),
                         .offset = product->offset.data()};
    num_bytes_ += (draft.factor.size() + draft.offset.size()) * sizeof(float);
    return std::unique_ptr<const PackedProduct>(std::move(product));
  }

  uint64_t num_bytes() const { return num_bytes_; }

 private:
  Result<DeviceArray<std::byte>> Stored(const std::vector<float>& values, DType dtype,
                                        bool is_shared) {
    if (is_shared && shared_.data() != nullptr) return shared_;
    MINISGL_ASSIGN_OR_RETURN(auto array, Copied(values, dtype));
    num_bytes_ += values.size() * DTypeBytes(dtype);
    if (is_shared) shared_ = array;
    return array;
  }

  Result<DeviceArray<std::byte>> Copied(const std::vector<float>& values, DType dtype) {
    if (dtype == DType::kF32) return Upload<std::byte>(ops_, std::as_bytes(std::span(values)));
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(FloatToBf16(value));
    return Upload<std::byte>(ops_, std::as_bytes(std::span(bits)));
  }

  // True if the rank adds what is added once.
  bool AddsOnce(const AdapterSite& site) const { return !site.is_sum || rank_.is_first(); }

  Status AddPart(const AdapterSite& site, const SitePart& part, const FittedChange& fitted,
                 int32_t expert, int64_t first_out, ProductDraft* draft) {
    const AdapterChange& change = *fitted.change;
    MINISGL_ASSIGN_OR_RETURN(const std::vector<float> factors, FactorsOf(part, fitted, expert));
    if (change.is_low_rank()) AddLowRank(part, fitted, factors, first_out, draft);
    if (change.weight.data != nullptr) {
      MINISGL_RETURN_IF_ERROR(AddWhole(part, change, first_out, draft));
    }
    if (!factors.empty()) {
      draft->factor.resize(static_cast<size_t>(site.num_out()), 1.0f);
      std::copy(factors.begin(), factors.end(), draft->factor.begin() + first_out);
    }
    return AddOffsets(site, part, change, factors, first_out, draft);
  }

  void AddLowRank(const SitePart& part, const FittedChange& fitted,
                  const std::vector<float>& factors, int64_t first_out, ProductDraft* draft) {
    const int64_t rank = fitted.rank(), num_out = part.num_out();
    int32_t first_rank = 0;
    for (const LowRankPart& before : draft->parts) first_rank += before.rank;
    for (int64_t k = 0; k < rank; ++k) {
      for (int64_t i = 0; !part.is_turned && i < part.inputs.count; ++i) {
        draft->a.push_back(fitted.A(k, part.inputs.first + i));
      }
      for (size_t i = 0; part.is_turned && i < part.outputs.size(); ++i) {
        draft->a.push_back(fitted.B(part.outputs[i], k));
      }
    }
    const AdapterChange& change = *fitted.change;
    draft->is_bf16 &= change.a.dtype == DType::kBF16 && change.b.dtype == DType::kBF16;
    draft->parts.push_back({first_out, num_out, first_rank, static_cast<int32_t>(rank),
                            static_cast<float>(change.scale)});
    draft->b_begins.push_back(draft->b.size());
    const auto value = [&](int64_t out, int64_t k) {
      if (part.is_turned) return fitted.A(k, part.inputs.first + out);
      const float stored = fitted.B(part.outputs[static_cast<size_t>(out)], k);
      return factors.empty() ? stored : factors[static_cast<size_t>(out)] * stored;
    };
    AppendTiles(num_out, rank, value, &draft->b);
  }

  Status AddWhole(const SitePart& part, const AdapterChange& change, int64_t first_out,
                  ProductDraft* draft) {
    const WeightTensor all(change.weight);
    const WeightTensor own =
        all.TakeRows(part.outputs).TakeInputs(part.inputs.first, part.inputs.count);
    WholePart whole = {.matrix = {}, .first_out = first_out};
    MINISGL_ASSIGN_OR_RETURN(whole.matrix, ops_->PackMatrix({&own, 1}, change.weight.dtype));
    num_bytes_ +=
        static_cast<uint64_t>(own.num_out() * own.num_in()) * DTypeBytes(change.weight.dtype);
    draft->whole.push_back(std::move(whole));
    return Status();
  }

  // What the product adds already, by stored output; empty: nothing.
  Result<std::vector<float>> BaseBias(const SitePart& part, int64_t num_out) const {
    const weights::TensorSpec* const spec = packer_.Find(part.stored, 0);
    std::string name = spec->name;
    std::vector<float> bias;
    if (!name.ends_with(kWeightSuffix)) return bias;
    name.replace(name.size() - kWeightSuffix.size(), kWeightSuffix.size(), ".bias");
    if (!checkpoint_.Has(name)) return bias;
    MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint_.Get(name));
    for (int64_t i = 0; i < std::min(num_out, view.num_elements()); ++i) bias.push_back(view.At(i));
    bias.resize(static_cast<size_t>(num_out));
    return bias;
  }

  // b' - g b + s c; after whole weights, which add nothing themselves, b'.
  Status AddOffsets(const AdapterSite& site, const SitePart& part, const AdapterChange& change,
                    const std::vector<float>& factors, int64_t first_out, ProductDraft* draft) {
    const bool is_whole = change.weight.data != nullptr;
    const bool is_changed = change.bias.data != nullptr || change.b_bias.data != nullptr ||
                            !factors.empty() || is_whole;
    if (!is_changed || !AddsOnce(site)) return Status();
    int64_t num_stored = 0;
    for (const int64_t out : part.outputs) num_stored = std::max(num_stored, out + 1);
    MINISGL_ASSIGN_OR_RETURN(const std::vector<float> base, BaseBias(part, num_stored));
    if (base.empty() && change.bias.data == nullptr && change.b_bias.data == nullptr) {
      return Status();
    }
    draft->offset.resize(static_cast<size_t>(site.num_out()));
    for (size_t i = 0; i < part.outputs.size(); ++i) {
      const int64_t out = part.outputs[i];
      const double old = base.empty() ? 0.0 : double{base[static_cast<size_t>(out)]};
      const double factor = is_whole ? 0.0 : factors.empty() ? 1.0 : double{factors[i]};
      const double wanted = change.bias.data == nullptr ? old : double{change.bias.At(out)};
      const double added =
          change.b_bias.data == nullptr ? 0.0 : change.scale * double{change.b_bias.At(out)};
      draft->offset[static_cast<size_t>(first_out) + i] =
          static_cast<float>(wanted - factor * old + added);
    }
    return Status();
  }

  // g = m / n of the part's outputs; empty: 1.
  Result<std::vector<float>> FactorsOf(const SitePart& part, const FittedChange& fitted,
                                       int32_t expert) const {
    std::vector<float> factors;
    const AdapterChange& change = *fitted.change;
    if (change.magnitude.data == nullptr) return factors;
    MINISGL_ASSIGN_OR_RETURN(const WeightTensor base, packer_.Whole(part.stored, expert));
    const auto num_in = static_cast<size_t>(base.num_in());
    std::vector<float> a;
    for (int64_t k = 0; k < fitted.rank(); ++k) {
      for (int64_t i = 0; i < base.num_in(); ++i) a.push_back(fitted.A(k, i));
    }
    std::vector<float> row(num_in);
    for (const int64_t out : part.outputs) {
      base.ReadRow(out, row.data());
      for (int64_t k = 0; k < fitted.rank(); ++k) {
        const auto scale = static_cast<float>(change.scale * fitted.B(out, k));
        const float* const from = a.data() + static_cast<size_t>(k) * num_in;
        for (size_t i = 0; i < num_in; ++i) row[i] += scale * from[i];
      }
      double squares = 0;
      for (const float value : row) squares += double{value} * value;
      const double length = std::sqrt(squares);
      factors.push_back(static_cast<float>(double{change.magnitude.At(out)} / length));
      if (!std::isfinite(factors.back())) {
        return BadInput("module \"{}\": row {} of the weights has length {}, by which DoRA divides",
                        Visible(change.module, 200), out, length);
      }
    }
    return factors;
  }

  // Rows of single tokens of an embedding that is also the output head are the head's, too.
  Status AddTiedTokens(const AdapterSite& site, bool* is_changed, ProductDraft* draft) {
    if (!IsTiedHead(site)) return Status();
    const auto found = changes_.find({-1, Role::kEmbedding, 0});
    if (found == changes_.end() || found->second.change->token_rows.data == nullptr) {
      return Status();
    }
    const AdapterChange& change = *found->second.change;
    if (!draft->parts.empty() || !draft->whole.empty()) {
      return BadInput(
          "module \"{}\": rows of tokens of a head that the adapter changes otherwise, "
          "too, are not supported",
          Visible(change.module, 200));
    }
    std::vector<std::pair<int64_t, int64_t>> outputs;  // of the rank's, and the row for it
    for (size_t row = 0; row < change.tokens.size(); ++row) {
      const auto& own = site.parts[0].outputs;
      const auto at = std::find(own.begin(), own.end(), int64_t{change.tokens[row]});
      if (at != own.end()) outputs.emplace_back(at - own.begin(), row);
    }
    std::sort(outputs.begin(), outputs.end());
    if (outputs.empty()) return Status();
    *is_changed = true;
    draft->factor.resize(static_cast<size_t>(site.num_out()), 1.0f);
    for (const auto& [out, row] : outputs) {
      draft->factor[static_cast<size_t>(out)] = 0;
      for (int64_t i = 0; i < site.num_in(); ++i) {
        draft->a.push_back(change.token_rows.At(row * site.num_in() + i));
      }
      draft->is_bf16 = false;
      draft->parts.push_back({out, 1, static_cast<int32_t>(draft->parts.size()), 1});
      draft->b_begins.push_back(draft->b.size());
      AppendTiles(
          1, 1, [](int64_t, int64_t) { return 1.0f; }, &draft->b);
    }
    return Status();
  }

  using Role = weights::TensorRole;

 public:
  // [tiles][rank][kLowRankTile] of value(out, k).
  template <typename Value>
  static void AppendTiles(int64_t num_out, int64_t rank, const Value& value,
                          std::vector<float>* tiles) {
    for (int64_t first = 0; first < num_out; first += kLowRankTile) {
      for (int64_t k = 0; k < rank; ++k) {
        for (int64_t out = first; out < first + kLowRankTile; ++out) {
          tiles->push_back(out < num_out ? value(out, k) : 0.0f);
        }
      }
    }
  }

 private:
  const Rank rank_;
  const Checkpoint& checkpoint_;
  const int32_t layer_;
  const FittedChanges& changes_;
  const Packer packer_;
  Ops* const ops_;
  DeviceArray<std::byte> shared_;  // of the heads of one site
  uint64_t num_bytes_ = 0;
};

// The embedding is looked up on the first rank, and has no cut.
Result<std::unique_ptr<const PackedEmbedding>> MakeEmbedding(const FittedChanges& changes,
                                                             ProductMaker* maker) {
  const auto found = changes.find({-1, weights::TensorRole::kEmbedding, 0});
  if (found == changes.end()) return std::unique_ptr<const PackedEmbedding>();
  const AdapterChange& change = *found->second.change;
  auto embedding = std::make_unique<PackedEmbedding>();
  embedding->whole = change.weight;
  embedding->rows = change.token_rows;
  for (size_t i = 0; i < change.tokens.size(); ++i) {
    embedding->row_of[change.tokens[i]] = static_cast<int64_t>(i);
  }
  if (change.is_low_rank()) {
    embedding->a = change.a;
    ProductDraft draft;
    const int64_t width = change.b.shape[0];
    draft.is_bf16 = change.b.dtype == DType::kBF16;
    draft.parts.push_back(
        {0, width, 0, static_cast<int32_t>(change.rank), static_cast<float>(change.scale)});
    draft.b_begins.push_back(0);
    const auto value = [&](int64_t out, int64_t k) { return change.b.At(out * change.rank + k); };
    ProductMaker::AppendTiles(width, change.rank, value, &draft.b);
    MINISGL_ASSIGN_OR_RETURN(embedding->product, maker->Finish(0, width, std::move(draft)));
  }
  return std::unique_ptr<const PackedEmbedding>(std::move(embedding));
}

}  // namespace

bool IsTiedHead(const AdapterSite& site) {
  return site.layer < 0 && site.parts.size() == 1 &&
         site.parts[0].role == weights::TensorRole::kHead &&
         site.parts[0].stored == weights::TensorRole::kEmbedding;
}

Result<std::shared_ptr<const PackedAdapter>> PackAdapter(
    const ModelConfig& config, const Rank& rank, const Checkpoint& checkpoint,
    const std::vector<AdapterSite>& sites, std::shared_ptr<const Adapter> adapter, Ops* ops) {
  const auto named = [&](const Status& status) {
    return status.WithPrefix(Visible(adapter->dir, 400));
  };
  auto packed = std::make_shared<PackedAdapter>();
  MINISGL_ASSIGN_OR_RETURN(const FittedChanges changes, FitAdapter(config, *adapter));
  std::optional<ProductMaker> maker;
  int32_t layer = -2;
  for (const AdapterSite& site : sites) {
    if (site.layer != layer) {
      if (maker) packed->num_bytes += maker->num_bytes();
      layer = site.layer;
      maker.emplace(config, rank, checkpoint, layer, changes, ops);
    }
    packed->products.emplace_back();
    packed->experts.emplace_back();
    const int32_t count =
        site.experts == nullptr ? 1 : static_cast<int32_t>(site.experts->num_experts);
    for (int32_t expert = 0; expert < count; ++expert) {
      auto product = maker->Make(site, expert);
      if (!product.ok()) return named(product.status());
      if (site.experts == nullptr) {
        packed->products.back() = std::move(product).value();
      } else if (*product != nullptr || !packed->experts.back().empty()) {
        packed->experts.back().resize(static_cast<size_t>(count));
        packed->experts.back()[static_cast<size_t>(expert)] = std::move(product).value();
      }
    }
  }
  ProductMaker outside(config, rank, checkpoint, -1, changes, ops);
  MINISGL_ASSIGN_OR_RETURN(packed->embedding, MakeEmbedding(changes, &outside));
  if (maker) packed->num_bytes += maker->num_bytes();
  packed->num_bytes += outside.num_bytes();
  packed->source = std::move(adapter);
  return std::shared_ptr<const PackedAdapter>(std::move(packed));
}

}  // namespace minisgl::model
