// See low_rank.h.
#include "cpu/low_rank.h"

#include <algorithm>

#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

// Multiplications in an item: some microseconds of work.
constexpr int64_t kItemWork = 1 << 16;
// Work that one thread does faster than it hands a part of it to another.
constexpr int64_t kAloneWork = 1 << 14;
// Rows of an item: their inputs stay in the second-level cache.
constexpr int64_t kRowsMaxOfItem = 64;

template <typename Body>
void RunItems(const LowRankScratch& scratch, int64_t work, ThreadPool* pool, const Body& body) {
  const auto count = std::ssize(scratch.items);
  if (work <= kAloneWork) {
    for (int64_t i = 0; i < count; ++i) body(scratch.items[static_cast<size_t>(i)]);
    return;
  }
  pool->ParallelForRanges(count,
                          [&](int64_t i, int) { body(scratch.items[static_cast<size_t>(i)]); });
}

// Lists the ranges of [0, count) of `part`, of which each costs `cost` a row, for all rows of a
// group. Returns the work.
int64_t ListItems(const LowRankMatrices& matrices, const LowRankPart* part, int64_t first_row,
                  int64_t num_rows, int64_t count, int64_t cost, int64_t multiple,
                  std::vector<LowRankScratch::Item>* items) {
  for (int64_t row = 0; row < num_rows; row += kRowsMaxOfItem) {
    const int64_t rows = std::min(kRowsMaxOfItem, num_rows - row);
    const int64_t wanted = kItemWork / std::max<int64_t>(1, cost * rows);
    const int64_t step = std::max<int64_t>(1, wanted / multiple) * multiple;
    for (int64_t first = 0; first < count; first += step) {
      items->push_back(
          {&matrices, part, first_row + row, rows, first, std::min(count, first + step)});
    }
  }
  return num_rows * count * cost;
}

void ListRows(const LowRankParams& p, LowRankScratch* scratch) {
  scratch->x.clear();
  scratch->u.clear();
  scratch->out.clear();
  float* u = p.inner;
  for (const LowRankGroup& group : p.groups) {
    const LowRankMatrices& matrices = *group.matrices;
    const int64_t stride = p.out_stride == 0 ? matrices.num_out : p.out_stride;
    const HeadRows& heads = p.heads;
    for (const int32_t row : group.rows) {
      int64_t in = row / p.rows_per_input * matrices.num_in, out = row * stride;
      if (heads.num_tokens > 0) {
        const int64_t head = row / heads.num_tokens, token = row % heads.num_tokens;
        in = token * heads.x_token + head * heads.x_head;
        out = token * heads.out_token + head * heads.out_head;
      }
      scratch->x.push_back(p.x == nullptr ? nullptr : p.x.f32() + in);
      scratch->u.push_back(u);
      scratch->out.push_back(p.out.f32() + out);
      u += matrices.num_ranks;
    }
  }
}

// The rows that a factor or an offset changes outside all parts.
void ChangeRest(const LowRankMatrices& matrices, int64_t first, int64_t end, float* out) {
  for (int64_t o = first; o < end; ++o) {
    if (matrices.factor != nullptr) out[o] *= matrices.factor[o];
    if (matrices.offset != nullptr) out[o] += matrices.offset[o];
  }
}

void ChangeOutsideParts(const LowRankMatrices& matrices, float* out) {
  if (matrices.factor == nullptr && matrices.offset == nullptr) return;
  int64_t at = 0;
  for (const LowRankPart& part : matrices.parts) {  // in order
    ChangeRest(matrices, at, part.first_out, out);
    at = part.first_out + part.num_out;
  }
  ChangeRest(matrices, at, matrices.num_out, out);
}

}  // namespace

uint64_t LowRankScratch::bytes() const {
  return items.capacity() * sizeof(Item) +
         (x.capacity() + u.capacity() + out.capacity()) * sizeof(void*);
}

void RunLowRank(const LowRankParams& p, const LowRankKernels& kernels, ThreadPool* pool,
                LowRankScratch* scratch) {
  ListRows(p, scratch);
  scratch->items.clear();
  int64_t first_row = 0, work = 0;
  for (const LowRankGroup& group : p.groups) {
    const LowRankMatrices& matrices = *group.matrices;
    const auto rows = std::ssize(group.rows);
    if (p.x != nullptr) {
      work += ListItems(matrices, nullptr, first_row, rows, matrices.num_ranks, matrices.num_in,
                        /*multiple=*/4, &scratch->items);
    }
    first_row += rows;
  }
  RunItems(*scratch, work, pool, [&](const LowRankScratch::Item& item) {
    const LowRankMatrices& matrices = *item.matrices;
    const auto bytes = static_cast<int64_t>(DTypeBytes(matrices.dtype));
    kernels.shrink(
        {.a = static_cast<const char*>(matrices.a) + item.first * matrices.num_in * bytes,
         .is_bf16 = matrices.dtype == DType::kBF16,
         .num_in = matrices.num_in,
         .num_ranks = item.end - item.first,
         .first_rank = item.first,
         .num_rows = item.num_rows,
         .x = scratch->x.data() + item.first_row,
         .u = scratch->u.data() + item.first_row});
  });
  scratch->items.clear();
  first_row = 0;
  work = 0;
  for (const LowRankGroup& group : p.groups) {
    const LowRankMatrices& matrices = *group.matrices;
    const auto rows = std::ssize(group.rows);
    for (const LowRankPart& part : matrices.parts) {
      work += ListItems(matrices, &part, first_row, rows, CeilDiv(part.num_out, kLowRankTile),
                        part.rank * kLowRankTile, /*multiple=*/1, &scratch->items);
    }
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      ChangeOutsideParts(matrices, scratch->out[static_cast<size_t>(row)]);
    }
    first_row += rows;
  }
  RunItems(*scratch, work, pool, [&](const LowRankScratch::Item& item) {
    const LowRankMatrices& matrices = *item.matrices;
    const LowRankPart& part = *item.part;
    const auto place = [&](const float* all) {
      return all == nullptr ? nullptr : all + part.first_out;
    };
    kernels.expand({.b = part.b,
                    .is_bf16 = matrices.dtype == DType::kBF16,
                    .num_out = part.num_out,
                    .rank = part.rank,
                    .first_rank = part.first_rank,
                    .first_out = part.first_out,
                    .scale = part.scale,
                    .first_tile = item.first,
                    .end_tile = item.end,
                    .num_rows = item.num_rows,
                    .u = scratch->u.data() + item.first_row,
                    .out = scratch->out.data() + item.first_row,
                    .factor = place(matrices.factor),
                    .offset = place(matrices.offset)});
  });
}

}  // namespace minisgl::cpu
