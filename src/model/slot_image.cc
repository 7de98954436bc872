// See slot_image.h.
#include "model/slot_image.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>

#include "minisgl/base/checked_math.h"
#include "minisgl/model/adapters.h"
#include "model/adapter_fit.h"

namespace minisgl::model {
namespace {

constexpr int64_t kPlaceUnit = 16;

int64_t RoundedUp(int64_t bytes) { return CeilDiv(bytes, kPlaceUnit) * kPlaceUnit; }

// Counts bytes as ImageWriter takes them, with f32 for every matrix.
class ImageCounter {
 public:
  explicit ImageCounter(int64_t begin) : bytes_(begin) {}
  void Add(int64_t count, size_t size = sizeof(float)) {
    bytes_ += RoundedUp(count * static_cast<int64_t>(size));
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
};

// Appends arrays to an image.
class ImageWriter {
 public:
  explicit ImageWriter(int64_t begin) : bytes_(static_cast<size_t>(begin)) {}

  int64_t Append(const void* data, size_t num_bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + static_cast<size_t>(RoundedUp(static_cast<int64_t>(num_bytes))));
    if (num_bytes > 0) std::memcpy(bytes_.data() + at, data, num_bytes);
    return static_cast<int64_t>(at);
  }
  // Products may share a matrix.
  int64_t AppendOnce(const void* data, size_t num_bytes) {
    const auto found = places_.find(data);
    if (found != places_.end()) return found->second;
    return places_[data] = Append(data, num_bytes);
  }
  template <typename T>
  int64_t Append(const std::vector<T>& values) {
    return Append(values.data(), values.size() * sizeof(T));
  }
  // In bf16 if it has that type, else in f32. Without data 0.
  int64_t Append(const TensorView& view, int32_t* is_bf16) {
    if (view.data == nullptr) return 0;
    *is_bf16 = view.dtype == DType::kBF16 ? 1 : 0;
    const auto count = static_cast<size_t>(view.num_elements());
    if (*is_bf16 != 0) return Append(view.data, count * sizeof(uint16_t));
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = view.At(static_cast<int64_t>(i));
    return Append(values);
  }
  template <typename T>
  void Put(int64_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::unordered_map<const void*, int64_t> places_;  // of what stands there once
  std::vector<std::byte> bytes_;
};

int64_t HeadBytes(const SlotLayout& layout) {
  return layout.embedding_place() + RoundedUp(sizeof(SlotEmbedding));
}

SlotProduct AppendProduct(const PackedProduct& product, ImageWriter* image) {
  const LowRankMatrices& matrices = product.matrices;
  const size_t element = DTypeBytes(matrices.dtype);
  SlotProduct slot = {.num_parts = static_cast<int32_t>(product.parts.size()),
                      .num_whole = static_cast<int32_t>(product.whole.size()),
                      .num_ranks = matrices.num_ranks,
                      .is_bf16 = matrices.dtype == DType::kBF16 ? 1 : 0};
  const auto floats = [&](const float* values) {
    const auto bytes = static_cast<size_t>(matrices.num_out) * sizeof(float);
    return values == nullptr ? 0 : image->Append(values, bytes);
  };
  slot.a = image->AppendOnce(matrices.a,
                             static_cast<size_t>(matrices.num_ranks * matrices.num_in) * element);
  std::vector<SlotPart> parts;
  for (const LowRankPart& part : product.parts) {
    const int64_t count = CeilDiv(part.num_out, kLowRankTile) * kLowRankTile * part.rank;
    parts.push_back({.b = image->AppendOnce(part.b, static_cast<size_t>(count) * element),
                     .first_out = static_cast<int32_t>(part.first_out),
                     .num_out = static_cast<int32_t>(part.num_out),
                     .first_rank = part.first_rank,
                     .rank = part.rank,
                     .scale = part.scale});
  }
  slot.parts = image->Append(parts);
  std::vector<SlotWhole> whole;
  for (const WholePart& part : product.whole) {
    const Matrix& matrix = part.matrix;
    const auto count = static_cast<size_t>(matrix.num_out * matrix.num_in);
    whole.push_back(
        {.weights = image->Append(matrix.storage.get(), count * DTypeBytes(matrix.dtype)),
         .first_out = static_cast<int32_t>(part.first_out),
         .num_out = static_cast<int32_t>(matrix.num_out),
         .is_bf16 = matrix.dtype == DType::kBF16 ? 1 : 0});
  }
  slot.whole = image->Append(whole);
  slot.factor = floats(matrices.factor);
  slot.offset = floats(matrices.offset);
  return slot;
}

SlotEmbedding AppendEmbedding(const PackedEmbedding& embedding, int64_t vocab_size,
                              ImageWriter* image) {
  SlotEmbedding slot;
  slot.whole = image->Append(embedding.whole, &slot.whole_is_bf16);
  slot.rows = image->Append(embedding.rows, &slot.rows_are_bf16);
  if (embedding.rows.data != nullptr) {
    std::vector<int32_t> row_of(static_cast<size_t>(vocab_size), -1);
    for (const auto& [id, row] : embedding.row_of) {
      row_of[static_cast<size_t>(id)] = static_cast<int32_t>(row);
    }
    slot.row_of = image->Append(row_of);
  }
  slot.a = image->Append(embedding.a, &slot.a_is_bf16);
  if (embedding.a.data == nullptr) return slot;
  slot.rank = static_cast<int32_t>(embedding.a.shape[0]);
  slot.num_ids = embedding.a.shape[1];
  return slot;
}

// What `adapter` has beside one product.
void CountProduct(const AdapterSite& site, const FittedChanges& changes, int32_t expert,
                  SlotSite* needs, ImageCounter* counter) {
  int64_t ranks = 0, num_parts = 0;
  bool has_floats = false;
  // Heads after the first have one of the two matrices of their own.
  const bool has_a = !site.by_heads || expert == 0 || site.parts[0].is_turned;
  const bool has_b = !site.by_heads || expert == 0 || !site.parts[0].is_turned;
  for (const SitePart& part : site.PartsOf(expert)) {
    const auto found = changes.find({site.layer, part.role, site.StoredIndex(expert)});
    if (found == changes.end()) continue;
    const AdapterChange& change = *found->second.change;
    const int64_t num_out = part.num_out();
    needs->is_changed = true;
    if (change.is_low_rank()) {
      ranks += found->second.rank();
      ++num_parts;
      const int64_t tiles = CeilDiv<int64_t>(num_out, kLowRankTile) * kLowRankTile;
      if (has_b) counter->Add(tiles * found->second.rank());
    }
    if (change.weight.data != nullptr) {
      needs->has_whole = true;
      counter->Add(num_out * part.inputs.count);
      counter->Add(1, sizeof(SlotWhole));
    }
    has_floats |= change.magnitude.data != nullptr || change.bias.data != nullptr ||
                  change.b_bias.data != nullptr || change.weight.data != nullptr;
  }
  const auto embedding = changes.find({-1, weights::TensorRole::kEmbedding, 0});
  if (IsTiedHead(site) && embedding != changes.end()) {
    const auto num_tokens = std::ssize(embedding->second.change->tokens);
    needs->is_changed |= num_tokens > 0;
    has_floats |= num_tokens > 0;
    ranks += num_tokens;
    num_parts += num_tokens;
    counter->Add(num_tokens * kLowRankTile);
  }
  if (has_a) counter->Add(ranks * site.num_in());
  counter->Add(num_parts, sizeof(SlotPart));
  if (has_floats) {
    counter->Add(site.num_out());
    counter->Add(site.num_out());
  }
  needs->max_ranks = std::max(needs->max_ranks, static_cast<int32_t>(ranks));
}

void CountEmbedding(const ModelConfig& config, const AdapterChange& change, SlotLayout* layout,
                    ImageCounter* counter) {
  layout->has_embedding = true;
  for (const TensorView* const view : {&change.weight, &change.token_rows, &change.a, &change.b}) {
    if (view->data == nullptr) continue;
    counter->Add(view->num_elements());
  }
  counter->Add(config.vocab_size);  // row_of
  if (!change.is_low_rank()) return;
  counter->Add(change.rank * kLowRankTile);
  counter->Add(1, sizeof(SlotPart));
  layout->embedding.is_changed = true;
  layout->embedding.max_ranks =
      std::max(layout->embedding.max_ranks, static_cast<int32_t>(change.rank));
}

}  // namespace

int64_t SlotLayout::embedding_place() const {
  return RoundedUp(num_products * static_cast<int64_t>(sizeof(SlotProduct)));
}

SlotLayout EmptyLayout(const std::vector<AdapterSite>& sites) {
  SlotLayout layout;
  for (const AdapterSite& site : sites) {
    const int64_t count = site.experts == nullptr ? 1 : site.experts->num_experts;
    layout.sites.push_back({.first_product = layout.num_products, .num_products = count});
    layout.num_products += count;
  }
  layout.embedding.first_product = layout.num_products++;
  layout.slot_bytes = HeadBytes(layout);
  return layout;
}

Status AddToLayout(const ModelConfig& config, const std::vector<AdapterSite>& sites,
                   const Adapter& adapter, SlotLayout* layout) {
  MINISGL_ASSIGN_OR_RETURN(const FittedChanges changes, FitAdapter(config, adapter));
  ImageCounter counter(HeadBytes(*layout));
  for (size_t i = 0; i < sites.size(); ++i) {
    for (int64_t expert = 0; expert < layout->sites[i].num_products; ++expert) {
      CountProduct(sites[i], changes, static_cast<int32_t>(expert), &layout->sites[i], &counter);
    }
  }
  const auto embedding = changes.find({-1, weights::TensorRole::kEmbedding, 0});
  if (embedding != changes.end()) {
    CountEmbedding(config, *embedding->second.change, layout, &counter);
  }
  layout->slot_bytes = std::max(layout->slot_bytes, counter.bytes());
  return Status();
}

std::vector<std::byte> MakeSlotImage(const ModelConfig& config, const SlotLayout& layout,
                                     const PackedAdapter& packed) {
  ImageWriter image(HeadBytes(layout));
  const auto put = [&](int64_t index, const PackedProduct* product) {
    if (product == nullptr) return;
    image.Put(index * static_cast<int64_t>(sizeof(SlotProduct)), AppendProduct(*product, &image));
  };
  for (size_t i = 0; i < layout.sites.size(); ++i) {
    put(layout.sites[i].first_product, packed.products[i].get());
    for (size_t expert = 0; expert < packed.experts[i].size(); ++expert) {
      put(layout.sites[i].first_product + static_cast<int64_t>(expert),
          packed.experts[i][expert].get());
    }
  }
  if (packed.embedding != nullptr) {
    image.Put(layout.embedding_place(),
              AppendEmbedding(*packed.embedding, config.vocab_size, &image));
    put(layout.embedding.first_product, packed.embedding->product.get());
  }
  return image.Take();
}

}  // namespace minisgl::model
