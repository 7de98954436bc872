// See naive_low_rank.h.
#include "cpu/naive_low_rank.h"

#include <vector>

#include "cpu/naive_values.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cpu {
namespace {

double Weight(const LowRankMatrices& matrices, const void* from, int64_t index) {
  return Get(ConstActivationPtr(from, matrices.dtype), index);
}

// Places of a row's first input and output.
struct RowPlaces {
  int64_t in, out;
};
RowPlaces PlacesOf(const HeadRows& heads, int64_t row, RowPlaces otherwise) {
  if (heads.num_tokens == 0) return otherwise;
  const int64_t head = row / heads.num_tokens, token = row % heads.num_tokens;
  return {token * heads.x_token + head * heads.x_head,
          token * heads.out_token + head * heads.out_head};
}

// u of one row, whose first input is at `first_in`.
std::vector<double> Shrink(const LowRankParams& p, const LowRankMatrices& matrices,
                           int64_t first_in, const float* inner) {
  std::vector<double> u;
  for (int64_t k = 0; k < matrices.num_ranks; ++k) {
    double sum = p.x == nullptr ? double{inner[k]} : 0;
    for (int64_t i = 0; p.x != nullptr && i < matrices.num_in; ++i) {
      sum += Weight(matrices, matrices.a, k * matrices.num_in + i) * Get(p.x, first_in + i);
    }
    u.push_back(sum);
  }
  return u;
}

// The slot of a token's adapter; null: none.
const std::byte* SlotOf(const AdapterSlots& slots, int64_t token) {
  const int32_t slot = slots.slot_of[token];
  return slot < 0 ? nullptr : slots.memory + slot * slots.slot_bytes;
}

template <typename T>
const T* AtOrNull(const std::byte* slot, int64_t place) {
  return place == 0 ? nullptr : reinterpret_cast<const T*>(slot + place);
}

DType TypeOf(int32_t is_bf16) { return is_bf16 != 0 ? DType::kBF16 : DType::kF32; }

void RunWhole(const SlotLowRankParams& p, const std::byte* slot, const SlotProduct& product,
              int64_t row, int64_t stride) {
  const auto* const parts = AtOrNull<SlotWhole>(slot, product.whole);
  for (int32_t i = 0; i < product.num_whole; ++i) {
    const SlotWhole& part = parts[i];
    const ConstActivationPtr weights(slot + part.weights, TypeOf(part.is_bf16));
    for (int64_t o = 0; o < part.num_out; ++o) {
      double sum = 0;
      for (int64_t in = 0; in < p.num_in; ++in) {
        sum += Get(weights, o * p.num_in + in) * Get(p.x, row / p.rows_per_input * p.num_in + in);
      }
      Put(p.out, row * stride + part.first_out + o, sum);
    }
  }
}

}  // namespace

void NaiveSlotLowRank(const SlotLowRankParams& p) {
  const int64_t stride = p.out_stride == 0 ? p.num_out : p.out_stride;
  for (int64_t row = 0; row < p.num_rows; ++row) {
    const int64_t heads_of = p.heads.num_tokens;
    const int64_t own = heads_of > 0 ? row % heads_of : row / p.rows_per_token;
    const int64_t token = p.tokens == nullptr ? own : p.tokens[row];
    const std::byte* const slot = SlotOf(p.slots, token);
    if (slot == nullptr) continue;
    const int64_t head = heads_of > 0 ? row / heads_of : 0;
    const int64_t expert = p.experts == nullptr ? head : p.experts[row];
    const SlotProduct& product =
        reinterpret_cast<const SlotProduct*>(slot)[p.first_product + expert];
    if (!product.changes()) continue;
    RunWhole(p, slot, product, row, stride);
    std::vector<LowRankPart> parts;
    for (int32_t i = 0; i < product.num_parts; ++i) {
      const SlotPart& part = AtOrNull<SlotPart>(slot, product.parts)[i];
      parts.push_back(
          {part.first_out, part.num_out, part.first_rank, part.rank, part.scale, slot + part.b});
    }
    const LowRankMatrices matrices = {.num_in = p.num_in,
                                      .num_out = p.num_out,
                                      .num_ranks = product.num_ranks,
                                      .dtype = TypeOf(product.is_bf16),
                                      .a = slot + product.a,
                                      .parts = parts,
                                      .factor = AtOrNull<float>(slot, product.factor),
                                      .offset = AtOrNull<float>(slot, product.offset)};
    const int32_t first = 0;
    const LowRankGroup group = {&matrices, {&first, 1}};
    const RowPlaces at = PlacesOf(p.heads, row, {row / p.rows_per_input * p.num_in, row * stride});
    NaiveLowRank({.x = p.x == nullptr ? nullptr : p.x.At(at.in),
                  .out = p.out.At(at.out),
                  .groups = {&group, 1},
                  .inner = p.inner + row * p.max_ranks});
  }
}

void NaiveSlotEmbeddings(const SlotEmbeddingParams& p) {
  for (int64_t token = 0; token < p.num_tokens; ++token) {
    const std::byte* const slot = SlotOf(p.slots, token);
    if (slot == nullptr) continue;
    const auto& own = *reinterpret_cast<const SlotEmbedding*>(slot + p.embedding);
    const int64_t id = p.ids[token];
    const int32_t row = own.row_of == 0 ? -1 : AtOrNull<int32_t>(slot, own.row_of)[id];
    const int64_t from = row >= 0 ? own.rows : own.whole;
    if (from != 0) {
      const int32_t is_bf16 = row >= 0 ? own.rows_are_bf16 : own.whole_is_bf16;
      const ConstActivationPtr table(slot + from, TypeOf(is_bf16));
      for (int64_t i = 0; i < p.width; ++i) {
        const double value = Get(table, (row >= 0 ? row : id) * p.width + i) * double{p.scale};
        p.out[token * p.width + i] = p.is_first_rank ? static_cast<float>(value) : 0.0f;
      }
    }
    for (int32_t k = 0; p.inner != nullptr && k < own.rank; ++k) {
      const ConstActivationPtr a(slot + own.a, TypeOf(own.a_is_bf16));
      p.inner[token * p.max_ranks + k] =
          static_cast<float>(Get(a, k * own.num_ids + id) * double{p.scale});
    }
  }
}

void NaiveLowRank(const LowRankParams& p) {
  const float* inner = p.inner;
  for (const LowRankGroup& group : p.groups) {
    const LowRankMatrices& matrices = *group.matrices;
    const int64_t stride = p.out_stride == 0 ? matrices.num_out : p.out_stride;
    for (const int32_t row : group.rows) {
      const RowPlaces at =
          PlacesOf(p.heads, row, {row / p.rows_per_input * matrices.num_in, row * stride});
      const std::vector<double> u = Shrink(p, matrices, at.in, inner);
      inner += matrices.num_ranks;
      std::vector<double> sums(static_cast<size_t>(matrices.num_out));
      for (const LowRankPart& part : matrices.parts) {
        for (int64_t o = 0; o < part.num_out; ++o) {
          const int64_t first = o / kLowRankTile * part.rank * kLowRankTile + o % kLowRankTile;
          for (int64_t k = 0; k < part.rank; ++k) {
            sums[static_cast<size_t>(part.first_out + o)] +=
                Weight(matrices, part.b, first + k * kLowRankTile) * double{part.scale} *
                u[static_cast<size_t>(part.first_rank + k)];
          }
        }
      }
      for (int64_t o = 0; o < matrices.num_out; ++o) {
        double value = Get(p.out, at.out + o);
        if (matrices.factor != nullptr) value *= double{matrices.factor[o]};
        if (matrices.offset != nullptr) value += double{matrices.offset[o]};
        Put(p.out, at.out + o, value + sums[static_cast<size_t>(o)]);
      }
    }
  }
}

}  // namespace minisgl::cpu
