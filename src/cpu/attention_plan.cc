// See attention_plan.h.
#include "cpu/attention_plan.h"

#include <algorithm>
#include <utility>

#include "cpu/prefix_order.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

// An item that costs more than a thread's share of the work divided by this is split up, so that a
// late item delays the end by at most that much.
constexpr int64_t kPartsPerThread = 4;
// Reading a key and its value takes about as long as the arithmetic of this many query rows.
constexpr int64_t kReadCost = 8;
// Minimum number of query rows of an item: with fewer, reading the keys would be a large part of
// the time.
constexpr int64_t kRowsWorthReading = 24;

// Maximum number of query rows of an item: reduced if there would be too few items for the threads.
int64_t ItemRowsMax(const AttentionParams& p, int num_threads) {
  if (num_threads == 1) return kQueryRowsMax;
  const int64_t num_rows = p.num_tokens * p.num_heads;  // of all KV heads
  return std::clamp(num_rows / (kPartsPerThread * num_threads), kRowsWorthReading, kQueryRowsMax);
}

// Cuts the rows of a step into segments and groups those into items.
class Planner {
 public:
  Planner(const AttentionParams& params, int num_threads, int64_t floats_max)
      : p_(params),
        num_threads_(num_threads),
        floats_max_(floats_max),
        group_size_(p_.num_heads / p_.num_kv_heads),
        tokens_max_(static_cast<int32_t>(
            std::max<int64_t>(1, ItemRowsMax(params, num_threads) / group_size_))) {}

  AttentionPlan Make() {
    CutRows();
    PackShared();
    PlaceItems();
    FillLoops();
    return std::move(plan_);
  }

 private:
  // Segments [begin, end) that pass over their keys together.
  struct Pack {
    int32_t begin, end;
  };
  struct Costed {
    AttentionItem item;
    int64_t cost;
  };

  // Cuts rows into segments of at most tokens_max_ tokens, from the end. The rest at a row's
  // beginning (the whole row if it decodes) may share keys with the rest of the next row.
  void CutRows() {
    int64_t shared = 0;  // tiles that the row shares with the last segment in short_
    for (const PrefixRow& next : OrderByPrefix(p_)) {
      const int32_t row_begin = p_.row_begin[next.row];
      int32_t end = p_.row_begin[next.row + 1];
      shared = short_.empty() ? 0 : std::min(shared, next.shared_tiles);
      for (; end - row_begin > tokens_max_; end -= tokens_max_) {
        long_.push_back({next.row, end - tokens_max_, end, 0});
      }
      if (end == row_begin) continue;  // no tokens at all
      short_.push_back({next.row, row_begin, end, shared});
      shared = INT64_MAX;
    }
  }

  // Divides chains of short segments, each of which shares at least one tile with the one before
  // it, into packs of about the same number of tokens, at most tokens_max_.
  void PackShared() {
    for (const AttentionSegment& s : long_) {
      plan_.segments.push_back(s);
      packs_.push_back({Count() - 1, Count()});
    }
    size_t next = 0;
    while (next < short_.size()) {
      size_t end = next + 1;
      int64_t tokens = short_[next].token_end - short_[next].token_begin;
      for (; end < short_.size() && short_[end].shared_tiles > 0; ++end) {
        tokens += short_[end].token_end - short_[end].token_begin;
      }
      const int64_t num_packs = CeilDiv<int64_t>(tokens, tokens_max_);
      PackChain(next, end, CeilDiv(tokens, num_packs));
      next = end;
    }
  }

  void PackChain(size_t begin, size_t end, int64_t tokens_wanted) {
    int64_t tokens = INT64_MAX;  // in the last pack
    for (size_t i = begin; i < end; ++i) {
      AttentionSegment segment = short_[i];
      const int64_t own = segment.token_end - segment.token_begin;
      if (tokens >= tokens_wanted || tokens + own > tokens_max_) {
        packs_.push_back({Count(), Count()});
        tokens = 0;
        segment.shared_tiles = 0;
      }
      plan_.segments.push_back(segment);
      packs_.back().end = Count();
      tokens += own;
    }
  }

  // Makes an item for each pack and KV head. Items of one KV head are neighbours, as they may read
  // the same keys.
  void PlaceItems() {
    std::vector<Costed> heads;
    for (const Pack& pack : packs_) heads.push_back(CostOf(pack));
    for (int32_t kv_head = 0; kv_head < p_.num_kv_heads; ++kv_head) {
      for (Costed& one : heads) {
        one.item.kv_head = kv_head;
        items_.push_back(one);
        total_cost_ += one.cost;
      }
    }
    std::stable_sort(items_.begin(), items_.end(),
                     [](const Costed& a, const Costed& b) { return a.cost > b.cost; });
  }

  Costed CostOf(const Pack& pack) const {
    Costed result = {.item = {.segments = plan_.segments.data() + pack.begin,
                              .num_segments = pack.end - pack.begin,
                              .split_begin = INT64_MAX},
                     .cost = 0};
    AttentionItem& item = result.item;
    for (int32_t i = 0; i < item.num_segments; ++i) {
      const AttentionSegment& s = item.segments[i];
      const int64_t own_end = p_.kv_len[s.row] - (p_.row_begin[s.row + 1] - s.token_end);
      const int64_t key_end = p_.key_end != nullptr ? p_.key_end[s.token_end - 1] : own_end;
      const int64_t num_tokens = s.token_end - s.token_begin;
      const int64_t key_begin = std::max<int64_t>(
          p_.first_key, p_.sliding_window > 0 ? own_end - num_tokens - p_.sliding_window + 1 : 0);
      item.num_tokens += num_tokens;
      item.split_begin = std::min(item.split_begin, key_begin / kSplitKeys);
      item.split_end = std::max(item.split_end, CeilDiv(key_end, kSplitKeys));
      const int64_t num_keys = key_end - key_begin;
      result.cost +=
          num_keys * num_tokens * group_size_ + (num_keys - s.shared_tiles * kTileKeys) * kReadCost;
    }
    return result;
  }

  // Splits come before whole items: they belong to the costliest items.
  void FillLoops() {
    plan_.loops.emplace_back();
    std::vector<AttentionItem> whole;
    for (const auto& [item, cost] : items_) {
      const int64_t num_splits = item.split_end - item.split_begin;
      const int64_t split_floats =
          AttentionStateFloats(item.num_tokens * group_size_, p_.value_dim());
      const int64_t floats = split_floats * num_splits;
      if (num_threads_ == 1 || num_splits == 1 || floats > floats_max_ ||
          cost * kPartsPerThread * num_threads_ <= total_cost_) {
        whole.push_back(item);
        continue;
      }
      if (plan_.loops.back().state_floats + floats > floats_max_) plan_.loops.emplace_back();
      SplitItem(item, split_floats, &plan_.loops.back());
    }
    auto& first = plan_.loops.front().attend;
    first.insert(first.end(), whole.begin(), whole.end());
  }

  static void SplitItem(AttentionItem item, int64_t split_floats, AttentionLoop* loop) {
    item.state_begin = loop->state_floats;
    loop->merge.push_back(item);
    for (int64_t split = item.split_begin; split < item.split_end; ++split) {
      AttentionItem one = item;
      one.split_begin = split;
      one.split_end = split + 1;
      one.state_begin = loop->state_floats;
      loop->state_floats += split_floats;
      loop->attend.push_back(one);
    }
  }

  int32_t Count() const { return static_cast<int32_t>(plan_.segments.size()); }

  const AttentionParams& p_;
  const int num_threads_;
  const int64_t floats_max_;
  const int64_t group_size_;
  const int32_t tokens_max_;  // upper bound on the tokens of an item
  std::vector<AttentionSegment> long_, short_;
  std::vector<Pack> packs_;
  std::vector<Costed> items_;
  int64_t total_cost_ = 0;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan PlanAttention(const AttentionParams& params, int num_threads, int64_t floats_max) {
  return Planner(params, num_threads, floats_max).Make();
}

AttentionPlanner::Key::Key(const AttentionParams& params)
    : page_table(params.page_table),
      key_end(params.key_end),
      page_size(params.kv.page_size),
      sliding_window(params.sliding_window),
      first_key(params.first_key),
      num_heads(params.num_heads),
      num_kv_heads(params.num_kv_heads),
      head_dim(params.head_dim),
      value_dim(params.value_dim()) {}

const AttentionPlan& AttentionPlanner::Plan(const AttentionParams& params, int num_threads) {
  if (params.step == 0 || params.step != step_) entries_.clear();
  step_ = params.step;
  const Key key(params);
  for (const Entry& entry : entries_) {
    if (entry.key == key) return entry.plan;
  }
  entries_.push_back({key, PlanAttention(params, num_threads)});
  return entries_.back().plan;
}

}  // namespace minisgl::cpu
