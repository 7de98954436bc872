// Rows whose page tables begin with the same pages: each row has bit for bit the result that it has
// alone, and the shared keys are read once for all of them.
#include <algorithm>
#include <numeric>
#include <vector>

#include "cpu/attention_plan.h"
#include "long_form.h"
#include "op_check.h"
#include "slow.h"

namespace minisgl::cpu {
namespace {

struct AttentionShape {
  int32_t num_heads = 2, num_kv_heads = 1, head_dim = 16;
  int32_t page_size = 16;
  int32_t sliding_window = 0;
  float logit_softcap = 0;
  bool has_sinks = false;
  bool token_first = false;  // [page][slot][head][e] instead of [page][head][slot][e]

  int64_t token_width() const { return int64_t{num_heads + 2 * num_kv_heads} * head_dim; }
  int64_t out_width() const { return int64_t{num_heads} * head_dim; }
  std::string Name() const {
    return fmt::format("H {} HKV {} E {} page {} window {} cap {} sinks {} token_first {}",
                       num_heads, num_kv_heads, head_dim, page_size, sliding_window, logit_softcap,
                       has_sinks, token_first);
  }
};

// The first `stem` keys of a row are the stem's; `extend` of its keys are this step's.
struct StepRow {
  int32_t stem, kv_len, extend = 1;
};

// A step over rows that have the whole pages of their stem in common, or (`is_apart`) each a copy.
class Step {
 public:
  Step(const AttentionShape& shape, const std::vector<StepRow>& rows, bool is_apart,
       bool keeps_bf16 = false)
      : shape_(shape), rows_(rows) {
    const auto longest =
        std::max_element(rows.begin(), rows.end(),
                         [](const StepRow& a, const StepRow& b) { return a.kv_len < b.kv_len; });
    stride_ = longest->kv_len / shape.page_size + 1;
    int32_t num_pages = static_cast<int32_t>(stride_);  // of the stem
    for (const StepRow& row : rows) {
      const int32_t num_shared =
          is_apart ? 0 : std::min(row.stem, row.kv_len - row.extend) / shape.page_size;
      for (int32_t page = 0; page < stride_; ++page) {
        const bool is_used = page * shape.page_size < row.kv_len;
        // Entries past a row's pages must not be followed.
        table_.push_back(page < num_shared ? page : is_used ? num_pages++ : -1000000);
      }
    }
    const int64_t page_floats = 2 * int64_t{shape.page_size} * shape.num_kv_heads * shape.head_dim;
    // Unwritten slots must not matter.
    storage_ = KvMemory(num_pages * page_floats);
    kv_ = {.base = KvBase(&storage_, keeps_bf16),
           .page_stride = page_floats,
           .slot_stride =
               shape.token_first ? int64_t{shape.num_kv_heads} * shape.head_dim : shape.head_dim,
           .head_stride =
               shape.token_first ? shape.head_dim : int64_t{shape.page_size} * shape.head_dim,
           .v_offset = page_floats / 2,
           .page_size = shape.page_size};
    sinks_ = RandomFloats(shape.num_heads, 99);
    const auto stem = RandomFloats(longest->kv_len * shape.token_width(), 1000);
    for (size_t i = 0; i < rows.size(); ++i) {
      inputs_.push_back(RandomFloats(rows[i].kv_len * shape.token_width(), i));
      std::copy_n(stem.begin(), std::min(rows[i].stem, rows[i].kv_len) * shape.token_width(),
                  inputs_[i].begin());
    }
  }

  void RoundInputs() {
    for (auto& inputs : inputs_) RoundToBf16(&inputs);
  }

  // Keys and values of all rows; shared pages are written again and again.
  void Write(Ops& ops) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::vector<float> qkv = inputs_[i];
      std::vector<int32_t> positions(rows_[i].kv_len);
      std::iota(positions.begin(), positions.end(), 0);
      std::vector<int64_t> slots;
      for (const int32_t position : positions) {
        const int64_t page = table_[i * stride_ + position / shape_.page_size];
        slots.push_back(page * shape_.page_size + position % shape_.page_size);
      }
      ops.RopeKvWrite({qkv.data(), positions.data(), slots.data(), nullptr, nullptr, kv_,
                       rows_[i].kv_len, shape_.num_heads, shape_.num_kv_heads, shape_.head_dim,
                       /*rotary_dim=*/0});
    }
  }

  // Calls body(params, rows' outputs) for a step of the chosen rows.
  template <typename Body>
  void With(const std::vector<int32_t>& chosen, const Body& body) {
    std::vector<int32_t> row_begin = {0}, kv_len;
    std::vector<float> qkv;
    for (const int32_t i : chosen) {
      const StepRow& row = rows_[i];
      qkv.insert(qkv.end(), inputs_[i].end() - row.extend * shape_.token_width(), inputs_[i].end());
      row_begin.push_back(row_begin.back() + row.extend);
      kv_len.push_back(row.kv_len);
    }
    OpOutput out(row_begin.back() * shape_.out_width());
    AttentionParams params = {};
    params.qkv = qkv.data();
    params.out = out.data();
    params.kv = kv_;
    params.page_table = table_.data();
    params.page_table_stride = stride_;
    params.table_row = chosen.data();
    params.row_begin = row_begin.data();
    params.kv_len = kv_len.data();
    params.num_rows = static_cast<int32_t>(chosen.size());
    params.num_tokens = row_begin.back();
    params.num_heads = shape_.num_heads;
    params.num_kv_heads = shape_.num_kv_heads;
    params.head_dim = shape_.head_dim;
    params.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_dim)));
    params.sliding_window = shape_.sliding_window;
    params.logit_softcap = shape_.logit_softcap;
    params.sinks = shape_.has_sinks ? sinks_.data() : nullptr;
    body(params, out);
  }

  std::vector<float> Run(Ops& ops, const std::vector<int32_t>& chosen) {
    std::vector<float> result;
    With(chosen, [&](const AttentionParams& params, const OpOutput& out) {
      ops.Attention(params);
      EXPECT_TRUE(out.GuardsIntact()) << shape_.Name();
      result = out.values();
    });
    return result;
  }

  std::vector<int32_t> AllRows() const {
    std::vector<int32_t> all(rows_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  const AttentionShape shape_;
  const std::vector<StepRow> rows_;
  int64_t stride_ = 0;
  std::vector<int32_t> table_;
  std::vector<float> storage_, sinks_;
  KvLayer kv_ = {};
  std::vector<std::vector<float>> inputs_;
};

// The bound of attention_test.cc, for inputs of deviation 1.
double Bound(const AttentionShape& shape) {
  const double score_error = (shape.head_dim + 8) * kEpsilon * 5 * std::sqrt(shape.head_dim) * 0.6;
  return (2 * (score_error + shape.logit_softcap * 8 * kEpsilon) + 140 * kEpsilon) * 5;
}

void ExpectSharingChangesNothing(const AttentionShape& shape, const std::vector<StepRow>& rows) {
  std::string what = shape.Name();
  for (const StepRow& row : rows)
    fmt::format_to(std::back_inserter(what), " {}:{}", row.stem, row.kv_len);
  const auto oracle = MakeNaiveOps();
  const auto expected_of = [&](bool keeps_bf16, bool rounds_queries) {
    Step naive(shape, rows, /*is_apart=*/true, keeps_bf16);
    if (rounds_queries) naive.RoundInputs();
    naive.Write(*oracle);
    return naive.Run(*oracle, naive.AllRows());
  };
  const std::vector<float> as_floats = expected_of(false, false),
                           as_bf16 = expected_of(true, false), rounded = expected_of(true, true);
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    const std::string name = CpuTargetName(target);
    const auto one = MakeOps(name, 1);
    Step apart(shape, rows, /*is_apart=*/true, keeps_bf16);
    Step shared(shape, rows, /*is_apart=*/false, keeps_bf16);
    apart.Write(*one);
    shared.Write(*one);
    std::vector<float> alone;
    for (const int32_t row : apart.AllRows()) {
      const auto values = apart.Run(*one, {row});
      alone.insert(alone.end(), values.begin(), values.end());
    }
    const bool rounds = keeps_bf16 && RoundsToBf16(*one);
    const double bound = Bound(shape) + (rounds ? kBf16WeightError * 5 : 0);
    ExpectClose(
        alone,
        rounds       ? rounded
        : keeps_bf16 ? as_bf16
                     : as_floats,
        [&](size_t) { return bound; }, name + " " + what);
    for (const int num_threads : {1, 2, 3}) {
      const auto ops = MakeOps(name, num_threads);
      ExpectSameBits(shared.Run(*ops, shared.AllRows()), alone, name + " shared " + what);
    }
    const auto two = MakeOps(name, 2);
    ExpectSameBits(apart.Run(*two, apart.AllRows()), alone, name + " apart " + what);
  }
}

std::vector<StepRow> Decodes(int count, int32_t stem, int32_t own) {
  std::vector<StepRow> rows;
  for (int i = 0; i < count; ++i) rows.push_back({stem, stem + 1 + (i * own) / count});
  return rows;
}

TEST(AttentionSharingTest, PrefixesAroundTilesSplitsAndPages) {
  MarkSlow("every length about every boundary");
  // In the short form each stem has two sizes of pages.
  const std::vector<int32_t> page_sizes = {1, 4, 16, 64}, groups = {1, 2, 4, 8};
  size_t turn = 0;
  for (const int32_t stem : {0, 63, 64, 65, 128, 428, 511, 512, 513, 1100}) {
    for (const int32_t page_size : page_sizes) {
      const int32_t group_size = groups[turn++ % groups.size()];
      if (!IsLongForm() && turn % 5 % 2 == turn / 10 % 2) continue;
      ExpectSharingChangesNothing(
          {.num_heads = 2 * group_size, .num_kv_heads = 2, .page_size = page_size},
          Decodes(3, stem, 70));
    }
    ++turn;
  }
}

TEST(AttentionSharingTest, GroupsOfAnySize) {
  MarkSlow("groups of up to all rows");
  for (const int count : {1, 2, 3, 4, 6, 7, 13, 24, 25, 40}) {
    for (const int32_t group_size : {1, 2, 4, 8}) {
      ExpectSharingChangesNothing({.num_heads = group_size, .head_dim = 4},
                                  Decodes(count, 200, 40));
    }
  }
}

// Decoding rows, drafts, chunks of a prompt and rows of other stems' lengths in one step.
TEST(AttentionSharingTest, RowsOfManyKinds) {
  MarkSlow("many random batches");
  const std::vector<StepRow> rows = {{428, 450},      {428, 500, 60}, {428, 431, 3}, {0, 90},
                                     {512, 513},      {64, 700, 2},   {428, 429},    {1100, 1101},
                                     {1100, 1200, 5}, {512, 600, 88}, {30, 31},      {0, 40, 40},
                                     {1024, 1030, 6}, {576, 577},     {428, 452, 24}};
  for (const int32_t group_size : {1, 3, 8}) {
    ExpectSharingChangesNothing({.num_heads = group_size, .head_dim = 4}, rows);
  }
  const std::vector<StepRow> few = {{128, 140}, {128, 150, 2}, {64, 90}, {128, 133, 5}};
  // More query rows for one token than the usual maximum of an item.
  ExpectSharingChangesNothing({.num_heads = 100, .head_dim = 4}, few);
  ExpectSharingChangesNothing({.num_heads = 6, .num_kv_heads = 2, .head_dim = 64}, few);
  ExpectSharingChangesNothing({.num_heads = 2, .head_dim = 128, .page_size = 64}, few);
  ExpectSharingChangesNothing({.num_heads = 4, .num_kv_heads = 2, .head_dim = 20, .page_size = 4},
                              rows);
  ExpectSharingChangesNothing({.num_heads = 4, .num_kv_heads = 2, .token_first = true}, rows);
}

TEST(AttentionSharingTest, WindowsCapsAndSinks) {
  MarkSlow("a product of options");
  const std::vector<StepRow> rows = {{428, 440}, {428, 429}, {428, 500, 9}, {428, 460}, {128, 130}};
  for (const int32_t window : {0, 20, 450, 1000}) {
    for (const bool has_sinks : {false, true}) {
      ExpectSharingChangesNothing({.num_heads = 4,
                                   .num_kv_heads = 2,
                                   .sliding_window = window,
                                   .logit_softcap = has_sinks ? 0.0f : 3.0f,
                                   .has_sinks = has_sinks},
                                  rows);
    }
  }
}

// Number of tiles that the kernels read for a step of all rows.
int64_t TilesRead(const AttentionShape& shape, const std::vector<StepRow>& rows, bool is_apart,
                  int num_threads) {
  const CpuTarget target = AvailableCpuTargets().front();
  const auto ops = MakeOps(CpuTargetName(target), 1);
  Step step(shape, rows, is_apart);
  step.Write(*ops);
  const AttentionKernels kernels = AttentionKernelGetters()[static_cast<size_t>(target)]();
  int64_t num_tiles = 0;
  step.With(step.AllRows(), [&](const AttentionParams& params, const OpOutput&) {
    std::vector<float> scratch(
        AttentionScratchFloats(kQueryRowsMax, shape.head_dim, shape.head_dim) + 16);
    const auto place = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
    for (const AttentionLoop& loop : PlanAttention(params, num_threads).loops) {
      std::vector<float> states(loop.state_floats + 16);
      const auto at = (reinterpret_cast<uintptr_t>(states.data()) + 63) / 64 * 64;
      for (const AttentionItem& item : loop.attend) {
        num_tiles += kernels.attend(params, item, /*products=*/nullptr,
                                    reinterpret_cast<float*>(at), reinterpret_cast<float*>(place));
      }
    }
  });
  return num_tiles;
}

// 12 rows of 2 query heads on each of 2 KV heads are one pack: it reads the stem's whole tiles once
// for each KV head, and one more tile for each row.
TEST(AttentionSharingTest, SharedTilesAreReadOnce) {
  const AttentionShape shape = {.num_heads = 4, .num_kv_heads = 2};
  for (const int num_threads : {1, 2, 8}) {
    EXPECT_EQ(TilesRead(shape, Decodes(12, 428, 10), /*is_apart=*/false, num_threads),
              2 * (6 + 12));
    EXPECT_EQ(TilesRead(shape, Decodes(12, 512, 10), /*is_apart=*/false, num_threads),
              2 * (8 + 12));
    EXPECT_EQ(TilesRead(shape, Decodes(12, 1100, 10), /*is_apart=*/false, num_threads),
              2 * (17 + 12));
    EXPECT_EQ(TilesRead(shape, Decodes(12, 512, 10), /*is_apart=*/true, num_threads), 2 * 12 * 9);
  }
}

// Rows that extend share their stem too, also with a window that does not cut it.
TEST(AttentionSharingTest, ExtendingRowsShareTilesToo) {
  AttentionShape shape = {.num_heads = 2, .sliding_window = 600};
  const std::vector<StepRow> rows = {{512, 517, 5}, {512, 513}, {512, 520, 8}, {512, 515, 2}};
  EXPECT_EQ(TilesRead(shape, rows, /*is_apart=*/false, 1), 8 + 4);
  shape.sliding_window = 519;  // the longest is cut and goes alone
  EXPECT_EQ(TilesRead(shape, rows, /*is_apart=*/false, 1), 8 + 3 + 9);
}

}  // namespace
}  // namespace minisgl::cpu
