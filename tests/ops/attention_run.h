// Requests that attend through a page table step by step, for tests of attention on the CPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "op_check.h"

namespace minisgl::cpu {

struct AttentionCase {
  int32_t num_heads = 2, num_kv_heads = 1, head_dim = 64;
  int32_t page_size = 16;
  int32_t sliding_window = 0;
  float logit_softcap = 0;
  bool has_sinks = false;
  bool token_first = false;    // [page][slot][head][e] instead of [page][head][slot][e]
  double deviation = 1.0;      // of queries, keys and values
  bool keeps_bf16 = false;     // keys and values
  bool keeps_codes = false;    // the same
  int32_t v_head_dim = 0;      // 0: head_dim
  bool queries_alone = false;  // attention is given an array of queries without keys and values
  bool values_in_keys = false;
  bool has_distances = false;
  // Positions [first, second) of each row whose tokens see each other.
  std::vector<std::pair<int32_t, int32_t>> runs = {};

  // The keys before it are those that the token at `position` sees.
  int32_t KeyEnd(int32_t position) const {
    for (const auto& [begin, end] : runs) {
      if (position >= begin && position < end) return end;
    }
    return position + 1;
  }
  int32_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
  int32_t stored_value_dim() const { return values_in_keys ? 0 : value_dim(); }
  int64_t token_width() const {
    return QkvWidth(num_heads, num_kv_heads, head_dim, stored_value_dim());
  }
  std::string Name() const {
    return fmt::format(
        "H {} HKV {} E {} EV {} page {} window {} cap {} sinks {} token_first {} bf16 {} codes {} "
        "alone {} "
        "in keys {} distances {} runs {}",
        num_heads, num_kv_heads, head_dim, value_dim(), page_size, sliding_window, logit_softcap,
        has_sinks, token_first, keeps_bf16, keeps_codes, queries_alone, values_in_keys,
        has_distances, runs.size());
  }
};

// Number of tokens by which each request extends in each step.
using Schedule = std::vector<std::vector<int32_t>>;

// Requests with paged storage of their own, run step by step.
class AttentionRun {
 public:
  AttentionRun(Ops& ops, const AttentionCase& c, const std::vector<int32_t>& lengths,
               uint64_t page_seed)
      : ops_(ops), case_(c), lengths_(lengths) {
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    pages_per_row_ = (longest + c.page_size - 1) / c.page_size;
    const int64_t num_pages = pages_per_row_ * static_cast<int64_t>(lengths.size()) + 3;
    std::vector<int32_t> pages(num_pages);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(page_seed));
    // Entries past a request's pages must not be followed.
    page_table_.assign(lengths.size() * pages_per_row_, -1000000);
    for (size_t row = 0; row < lengths.size(); ++row) {
      for (int32_t page = 0; page * c.page_size < lengths[row]; ++page) {
        page_table_[row * pages_per_row_ + page] = pages.back();
        pages.pop_back();
      }
    }
    const int64_t page_keys = int64_t{c.page_size} * c.num_kv_heads * c.head_dim;
    const int64_t page_floats =
        page_keys + int64_t{c.page_size} * c.num_kv_heads * c.stored_value_dim();
    // Unwritten slots must not matter.
    storage_ = KvMemory(num_pages * page_floats);
    kv_ = {.base = KvBase(&storage_, c.keeps_bf16),
           .page_stride = page_floats,
           .slot_stride = c.token_first ? int64_t{c.num_kv_heads} * c.head_dim : c.head_dim,
           .head_stride = c.token_first ? c.head_dim : int64_t{c.page_size} * c.head_dim,
           .v_offset = page_keys,
           .page_size = c.page_size};
    if (c.v_head_dim > 0) {
      kv_.v_slot_stride = c.token_first ? int64_t{c.num_kv_heads} * c.value_dim() : c.value_dim();
      kv_.v_head_stride = c.token_first ? c.value_dim() : int64_t{c.page_size} * c.value_dim();
    }
    if (c.values_in_keys) {
      kv_.values_in_keys = true;
      kv_.v_offset = c.head_dim - c.value_dim();
      kv_.v_slot_stride = kv_.slot_stride;
      kv_.v_head_stride = kv_.head_stride;
    }
    if (c.keeps_codes) {
      const int64_t scales = int64_t{c.page_size} * c.num_kv_heads;
      std::fill(storage_.begin(), storage_.end(), std::bit_cast<float>(0xFFFFFFFFu));
      kv_.base.dtype = DType::kE4M3;
      kv_.k_scales = page_floats;
      kv_.v_scales = page_floats + scales;
      kv_.page_stride = page_floats + 2 * scales;
    }
    for (size_t row = 0; row < lengths.size(); ++row) {
      inputs_.push_back(RandomFloats(lengths[row] * c.token_width(), 100 + row, c.deviation));
      outputs_.emplace_back();
    }
    done_.assign(lengths.size(), 0);
    sinks_ = RandomFloats(c.num_heads, 99);
    distances_ = RandomFloats(c.num_heads * (2 * kLongest + AttentionParams::kKeysPast), 77);
  }

  // Puts NaN into the first key, or the first value, of a position.
  void Poison(size_t row, int32_t position, bool value) {
    const int64_t head = case_.num_heads + (value ? case_.num_kv_heads : 0);
    inputs_[row][position * case_.token_width() + head * case_.head_dim] =
        std::numeric_limits<float>::quiet_NaN();
  }

  void RoundQueries() {
    const auto width = static_cast<size_t>(case_.token_width());
    const auto count = static_cast<size_t>(case_.num_heads * case_.head_dim);
    for (auto& inputs : inputs_) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (i % width < count) inputs[i] = Bf16ToFloat(FloatToBf16(inputs[i]));
      }
    }
  }
  // The stored keys and values.
  const std::vector<float>& storage() const { return storage_; }
  std::vector<float>* inputs(size_t row) { return &inputs_[row]; }

  // Runs until every request has all its tokens: steps of the schedule, the last one repeated.
  std::vector<std::vector<float>> Run(const Schedule& schedule) {
    for (size_t step = 0; done_ != lengths_; ++step) {
      RunStep(schedule[std::min(step, schedule.size() - 1)]);
    }
    return outputs_;
  }

 private:
  void RunStep(const std::vector<int32_t>& extend) {
    std::vector<int32_t> table_row, row_begin = {0}, kv_len, positions, key_end;
    std::vector<int64_t> slots;
    std::vector<float> qkv;
    for (size_t row = 0; row < lengths_.size(); ++row) {
      const int32_t count = std::min(extend[row % extend.size()], lengths_[row] - done_[row]);
      if (count == 0) continue;
      ForgetPages(row);
      const float* from = inputs_[row].data() + done_[row] * case_.token_width();
      qkv.insert(qkv.end(), from, from + count * case_.token_width());
      for (int32_t i = 0; i < count; ++i) {
        const int32_t position = done_[row]++;
        const int32_t page = page_table_[row * pages_per_row_ + position / case_.page_size];
        positions.push_back(position);
        key_end.push_back(case_.KeyEnd(position));
        slots.push_back(int64_t{page} * case_.page_size + position % case_.page_size);
      }
      table_row.push_back(static_cast<int32_t>(row));
      row_begin.push_back(row_begin.back() + count);
      kv_len.push_back(done_[row]);
    }
    const int64_t num_tokens = row_begin.back();
    ops_.RopeKvWrite({qkv.data(), positions.data(), slots.data(), nullptr, nullptr, kv_, num_tokens,
                      case_.num_heads, case_.num_kv_heads, case_.head_dim, /*rotary_dim=*/0,
                      nullptr, nullptr, 0, false, nullptr, case_.v_head_dim});
    const int64_t out_width = int64_t{case_.num_heads} * case_.value_dim();
    const int64_t query_width = int64_t{case_.num_heads} * case_.head_dim;
    if (case_.queries_alone) {
      for (int64_t t = 0; t < num_tokens; ++t) {
        std::copy_n(qkv.begin() + t * case_.token_width(), query_width,
                    qkv.begin() + t * query_width);
      }
      qkv.resize(static_cast<size_t>(num_tokens * query_width));
      // Has nothing to do, and no storage to do it in.
      ops_.RopeKvWrite({qkv.data(),
                        positions.data(),
                        slots.data(),
                        nullptr,
                        nullptr,
                        {},
                        num_tokens,
                        case_.num_heads,
                        0,
                        case_.head_dim,
                        /*rotary_dim=*/0});
    }
    OpOutput out(num_tokens * out_width);
    AttentionParams params = {};
    params.qkv = qkv.data();
    params.out = out.data();
    params.kv = kv_;
    params.page_table = page_table_.data();
    params.page_table_stride = pages_per_row_;
    params.table_row = table_row.data();
    params.row_begin = row_begin.data();
    params.kv_len = kv_len.data();
    params.num_rows = static_cast<int32_t>(table_row.size());
    params.num_tokens = num_tokens;
    params.num_heads = case_.num_heads;
    params.num_kv_heads = case_.num_kv_heads;
    params.head_dim = case_.head_dim;
    params.v_head_dim = case_.v_head_dim;
    params.qkv_stride = case_.queries_alone ? query_width : case_.token_width();
    params.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(case_.head_dim)));
    params.sliding_window = case_.sliding_window;
    params.logit_softcap = case_.logit_softcap;
    params.sinks = case_.has_sinks ? sinks_.data() : nullptr;
    if (case_.has_distances) {
      params.distance_bias = distances_.data();
      params.distance_origin = kLongest;
      params.distance_stride = 2 * kLongest + AttentionParams::kKeysPast;
    }
    params.key_end = case_.runs.empty() ? nullptr : key_end.data();
    ops_.Attention(params);
    EXPECT_TRUE(out.GuardsIntact()) << case_.Name();
    for (size_t i = 0; i < table_row.size(); ++i) {
      auto& to = outputs_[table_row[i]];
      to.insert(to.end(), out.data() + row_begin[i] * out_width,
                out.data() + row_begin[i + 1] * out_width);
    }
  }

  // Pages that lie whole before the window of the row's next token must not be followed either.
  void ForgetPages(size_t row) {
    if (case_.sliding_window == 0) return;
    const int32_t first_seen = std::max(0, done_[row] - case_.sliding_window + 1);
    std::fill_n(page_table_.begin() + static_cast<int64_t>(row) * pages_per_row_,
                first_seen / case_.page_size, -1000000);
  }

  Ops& ops_;
  const AttentionCase case_;
  const std::vector<int32_t> lengths_;
  int64_t pages_per_row_ = 0;
  std::vector<int32_t> page_table_, done_;
  static constexpr int64_t kLongest = 1100;  // tokens of a request
  std::vector<float> storage_, sinks_, distances_;
  KvLayer kv_ = {};
  std::vector<std::vector<float>> inputs_, outputs_;
};

inline const Schedule kAtOnce = {{1 << 20}};

// A score has the rounding errors of its sum and of the scale, tanh and exponential that follow
// (their arguments grow with the score). A weight's error is at most twice that, and a result's at
// most the weights' error times the largest value.
inline double Bound(const AttentionCase& c) {
  const double largest_score = 5 * c.deviation * c.deviation * std::sqrt(c.head_dim) * 0.6;
  const double score_error = (c.head_dim + 8) * kEpsilon * largest_score;
  const double cap_error = c.logit_softcap * 8 * kEpsilon;
  return (2 * (score_error + cap_error) + 140 * kEpsilon) * 5 * c.deviation;
}

}  // namespace minisgl::cpu
