// See attention_scene.h.
#include "gpu/attention_scene.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace minisgl::cuda {

std::string GpuAttentionCase::Name() const {
  std::string name =
      fmt::format("{} E{} V{}{} H{}/{} P{} window {} cap {} sinks {} deterministic {} rows",
                  DTypeName(dtype), head_dim, ValueDim(*this), values_in_keys ? " in keys" : "",
                  num_heads, num_kv_heads, page_size, window, softcap, has_sinks, deterministic);
  for (const PagedAttentionRow& row : rows) {
    fmt::format_to(std::back_inserter(name), " {}/{}", row.num_tokens, row.kv_len);
  }
  return name;
}

GpuAttentionScene::GpuAttentionScene(const GpuAttentionCase& c)
    : case_(c), random_(c.seed), tables_(c.rows, c.page_size, &random_), row_begin_{0} {
  for (const PagedAttentionRow& row : c.rows) {
    row_begin_.push_back(row_begin_.back() + row.num_tokens);
  }
  all_rows_.resize(c.rows.size());
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  FillKeys();
  qkv_ = RoundedTo(c.dtype, RandomFloats(row_begin_.back() * qkv_width(), c.seed + 5));
  for (size_t i = 0; i < qkv_.size(); ++i) {
    if (static_cast<int64_t>(i) % qkv_width() >= int64_t{c.num_heads} * c.head_dim) {
      qkv_[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (c.has_sinks) sinks_ = RandomFloats(c.num_heads, c.seed + 7, 2.0);
}

void GpuAttentionScene::FillKeys() {
  const KvLayer kv = PagedAttentionParams(case_, tables_.stride).kv;
  keys_ = RoundedTo(case_.dtype, RandomFloats(tables_.num_pages * kv.page_stride, case_.seed + 3));
  for (size_t r = 0; r < case_.rows.size(); ++r) {
    const int32_t used = case_.rows[r].kv_len % case_.page_size;
    if (used == 0) continue;
    const int64_t last = tables_.entries[static_cast<size_t>(
        tables_.table_row[r] * tables_.stride + case_.rows[r].kv_len / case_.page_size)];
    for (int32_t slot = used; slot < case_.page_size; ++slot) {
      ForEachPart(kv, case_.num_kv_heads, case_.head_dim, ValueDim(case_), last, slot,
                  [&](int64_t first, int64_t count) {
                    std::fill_n(keys_.begin() + first, count,
                                std::numeric_limits<float>::quiet_NaN());
                  });
    }
  }
}

GpuAttentionScene::Step GpuAttentionScene::StepOf(const std::vector<int32_t>& rows) const {
  Step step;
  for (const int32_t row : rows) {
    const PagedAttentionRow& shape = case_.rows[static_cast<size_t>(row)];
    step.table_row.push_back(tables_.table_row[static_cast<size_t>(row)]);
    step.row_begin.push_back(step.row_begin.back() + shape.num_tokens);
    step.kv_len.push_back(shape.kv_len);
    const auto begin = qkv_.begin() + row_begin_[static_cast<size_t>(row)] * qkv_width();
    step.qkv.insert(step.qkv.end(), begin, begin + shape.num_tokens * qkv_width());
    const bool decodes = step.num_decode_rows + 1 == std::ssize(step.kv_len);
    if (decodes && shape.num_tokens == 1) ++step.num_decode_rows;
  }
  return step;
}

// All parameters except arrays.
AttentionParams GpuAttentionScene::Params(const Step& step) const {
  AttentionParams params = PagedAttentionParams(case_, tables_.stride);
  params.num_rows = static_cast<int32_t>(step.kv_len.size());
  params.num_decode_rows = step.num_decode_rows;
  params.num_tokens = step.row_begin.back();
  return params;
}

std::vector<unsigned char> GpuAttentionScene::Run(const std::vector<int32_t>& rows) const {
  const Step step = StepOf(rows);
  auto made = MakeGpu({.activation_dtype = case_.dtype, .deterministic = case_.deterministic});
  MINISGL_CHECK(made.ok(), "{}", made.status().message());
  DeviceOps* const ops = made->get();
  // The same limits for all choices of rows: the division of keys may depend on them.
  const Status reserved = ops->Reserve({.max_rows = static_cast<int32_t>(case_.rows.size()) + 2,
                                        .max_tokens = row_begin_.back() + 5,
                                        .max_seq_len = tables_.stride * case_.page_size,
                                        .num_heads = case_.num_heads,
                                        .num_kv_heads = case_.num_kv_heads,
                                        .head_dim = case_.head_dim,
                                        .v_head_dim = ValueDim(case_),
                                        .values_in_keys = case_.values_in_keys});
  MINISGL_CHECK(reserved.ok(), "{}", reserved.message());
  const GpuArray qkv(ops, case_.dtype, step.qkv), keys(ops, case_.dtype, keys_);
  const GpuArray page_table(ops, tables_.entries), table_row(ops, step.table_row);
  const GpuArray row_begin(ops, step.row_begin), kv_len(ops, step.kv_len), sinks(ops, sinks_);
  GpuArray out(ops, static_cast<size_t>(step.row_begin.back() * out_width()) * 2);
  AttentionParams params = Params(step);
  params.qkv = qkv.ptr(case_.dtype);
  params.out = out.ptr(case_.dtype);
  params.kv.base = keys.ptr(case_.dtype);
  params.page_table = page_table.i32();
  params.table_row = table_row.i32();
  params.row_begin = row_begin.i32();
  params.kv_len = kv_len.i32();
  params.sinks = case_.has_sinks ? sinks.f32() : nullptr;
  return RunTwice(&out, case_.Name(), [&] {
    ops->PlanAttention({.row_begin = params.row_begin,
                        .kv_len = params.kv_len,
                        .num_rows = params.num_rows,
                        .num_decode_rows = params.num_decode_rows,
                        .num_tokens = step.row_begin.back(),
                        .num_heads = params.num_heads,
                        .num_kv_heads = params.num_kv_heads,
                        .head_dim = params.head_dim,
                        .sliding_window = params.sliding_window,
                        .v_head_dim = params.v_head_dim,
                        .values_in_keys = case_.values_in_keys});
    ops->Attention(params);
  });
}

std::vector<unsigned char> GpuAttentionScene::RowOf(const std::vector<unsigned char>& all,
                                                    int32_t row) const {
  const int64_t width = out_width() * 2;
  return {all.begin() + row_begin_[static_cast<size_t>(row)] * width,
          all.begin() + row_begin_[static_cast<size_t>(row) + 1] * width};
}

// `magnitude`: the result with each value replaced by its magnitude.
std::vector<float> GpuAttentionScene::Expected(bool magnitude) const {
  const Step step = StepOf(all_rows_);
  AttentionParams params = Params(step);
  std::vector<float> keys = keys_;
  SetValuesApart(&params, &keys);
  if (magnitude) TakeValueMagnitudes(params.kv, &keys);
  std::vector<float> out(static_cast<size_t>(step.row_begin.back() * out_width()));
  params.qkv = step.qkv.data();
  params.out = out.data();
  params.kv.base = keys.data();
  params.page_table = tables_.entries.data();
  params.table_row = step.table_row.data();
  params.row_begin = step.row_begin.data();
  params.kv_len = step.kv_len.data();
  params.sinks = case_.has_sinks ? sinks_.data() : nullptr;
  MakeNaiveOps()->Attention(params);
  return out;
}

// Tensor cores truncate the sum of a score, which doubles its error.
void GpuAttentionScene::Check() const {
  const std::vector<float> actual = FloatsOf(case_.dtype, Run());
  const std::vector<float> expected = Expected(false), magnitude = Expected(true);
  int32_t longest = 0;
  for (const PagedAttentionRow& row : case_.rows) longest = std::max(longest, row.kv_len);
  ExpectWithin(
      actual, expected,
      [&](size_t i) {
        return AttentionBound(case_.dtype, 32.0 * case_.head_dim, longest, expected[i],
                              magnitude[i]);
      },
      case_.Name());
}

}  // namespace minisgl::cuda
