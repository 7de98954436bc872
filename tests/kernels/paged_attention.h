// A step of attention over a paged cache, for the tests of the kernels (here) and of the device
// (tests/gpu): page tables, the layout of the cache, and the bound of a result.
#pragma once

#include <cmath>
#include <numeric>

#include "kernel_check.h"

namespace minisgl::cuda {

struct PagedAttentionRow {
  int32_t num_tokens;
  int32_t kv_len;
};

// Pages and table rows in random order. Unused entries are far out of the cache.
struct PageTables {
  int64_t stride = 0;
  int64_t num_pages = 0;
  std::vector<int32_t> table_row;
  std::vector<int32_t> entries;  // [rows, stride]

  PageTables() = default;
  PageTables(const std::vector<PagedAttentionRow>& rows, int32_t page_size,
             std::mt19937_64* random) {
    const auto pages_of = [page_size](const PagedAttentionRow& row) {
      return (row.kv_len + page_size - 1) / page_size;
    };
    for (const PagedAttentionRow& row : rows) {
      num_pages += pages_of(row);
      stride = std::max<int64_t>(stride, pages_of(row) + 3);
    }
    table_row.resize(rows.size());
    std::iota(table_row.begin(), table_row.end(), 0);
    std::shuffle(table_row.begin(), table_row.end(), *random);
    std::vector<int32_t> pages(static_cast<size_t>(num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), *random);
    entries.assign(rows.size() * static_cast<size_t>(stride), 1 << 28);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int32_t i = 0; i < pages_of(rows[r]); ++i) {
        entries[static_cast<size_t>(table_row[r] * stride + i)] = pages.back();
        pages.pop_back();
      }
    }
  }
};

// Elements of a value.
template <typename Case>
int32_t ValueDim(const Case& c) {
  return c.value_dim == 0 ? c.head_dim : c.value_dim;
}

// Elements of a token's queries, keys and values.
template <typename Case>
int64_t TokenWidth(const Case& c) {
  return QkvWidth(c.num_heads, c.num_kv_heads, c.head_dim, c.values_in_keys ? 0 : ValueDim(c));
}

// The parameters of a case, except arrays, rows and tokens. A page holds the keys of each KV head,
// then the values of each unless they are the ends of the keys, [slot][element].
template <typename Case>
AttentionParams PagedAttentionParams(const Case& c, int64_t table_stride) {
  const int64_t keys = int64_t{c.page_size} * c.head_dim;
  const int64_t values = c.values_in_keys ? 0 : int64_t{c.page_size} * ValueDim(c);
  AttentionParams params = {};
  params.kv.page_stride = c.num_kv_heads * (keys + values);
  params.kv.slot_stride = c.head_dim;
  params.kv.head_stride = keys;
  params.kv.v_offset = c.values_in_keys ? c.head_dim - ValueDim(c) : c.num_kv_heads * keys;
  params.kv.v_slot_stride = c.values_in_keys ? c.head_dim : ValueDim(c);
  params.kv.v_head_stride = c.values_in_keys ? keys : values;
  params.kv.values_in_keys = c.values_in_keys;
  params.kv.page_size = c.page_size;
  params.page_table_stride = table_stride;
  params.num_heads = c.num_heads;
  params.num_kv_heads = c.num_kv_heads;
  params.head_dim = c.head_dim;
  params.v_head_dim = ValueDim(c);
  params.qkv_stride = TokenWidth(c);
  params.scale = 2.0f / std::sqrt(static_cast<float>(c.head_dim));
  params.sliding_window = c.window;
  params.logit_softcap = c.softcap;
  return params;
}

// Calls f(first, count) for the elements of a slot of a page: each head's key, then its value if
// that is apart.
template <typename F>
void ForEachPart(const KvLayer& kv, int32_t num_kv_heads, int32_t head_dim, int32_t value_dim,
                 int64_t page, int32_t slot, const F& f) {
  const int64_t begin = page * kv.page_stride;
  for (int32_t head = 0; head < num_kv_heads; ++head) {
    f(begin + slot * kv.slot_stride + head * kv.head_stride, head_dim);
    if (kv.values_in_keys) continue;
    f(begin + kv.v_offset + slot * kv.v_slot_stride + head * kv.v_head_stride, value_dim);
  }
}

// Puts copies of values that are the ends of their keys behind these, so that they can change
// alone.
inline void SetValuesApart(AttentionParams* params, std::vector<float>* cache) {
  const KvLayer from = params->kv;
  if (!from.values_in_keys) return;
  KvLayer& to = params->kv;
  to.values_in_keys = false;
  to.v_offset = from.page_stride;
  to.v_slot_stride = params->value_dim();
  to.v_head_stride = to.v_slot_stride * from.page_size;
  to.page_stride += to.v_head_stride * params->num_kv_heads;
  const int64_t num_pages = std::ssize(*cache) / from.page_stride;
  std::vector<float> apart(static_cast<size_t>(num_pages * to.page_stride));
  for (int64_t page = 0; page < num_pages; ++page) {
    const auto first = cache->begin() + page * from.page_stride;
    const auto target = apart.begin() + page * to.page_stride;
    std::copy_n(first, from.page_stride, target);
    for (int32_t head = 0; head < params->num_kv_heads; ++head) {
      for (int32_t slot = 0; slot < from.page_size; ++slot) {
        std::copy_n(first + from.v_offset + head * from.v_head_stride + slot * from.v_slot_stride,
                    params->value_dim(),
                    target + to.v_offset + head * to.v_head_stride + slot * to.v_slot_stride);
      }
    }
  }
  *cache = std::move(apart);
}

// Replaces the values of a cache by their magnitudes. REQUIRES values apart.
inline void TakeValueMagnitudes(const KvLayer& kv, std::vector<float>* cache) {
  for (size_t i = 0; i < cache->size(); ++i) {
    if (static_cast<int64_t>(i) % kv.page_stride >= kv.v_offset) {
      (*cache)[i] = std::abs((*cache)[i]);
    }
  }
}

// Bound of an element: its own rounding and the weights'. If each w_i is off by u * w_i,
// sum w_i v_i / sum w_i is off by at most u * (sum w_i |v_i| / sum w_i + |out|). To that add
// `score_terms` f32 roundings for the sum of a score and its exponential, and those of the sums
// over keys.
inline double AttentionBound(DType dtype, double score_terms, int32_t longest, float expected,
                             float magnitude) {
  const double sums = 0x1.0p-24 * (score_terms + 2.0 * longest);
  return RoundingError(dtype, expected) +
         (UnitRoundoff(dtype) + sums) * (std::abs(expected) + magnitude) + 1e-6;
}

}  // namespace minisgl::cuda
