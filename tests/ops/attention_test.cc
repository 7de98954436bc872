// Attention through the page table: against the oracle over shapes and options, and bit for bit
// over page sizes, page orders, chunks, batch-mates and threads.
#include <algorithm>
#include <numeric>

#include "attention_run.h"
#include "long_form.h"
#include "op_check.h"
#include "slow.h"

namespace minisgl::cpu {
namespace {

void ExpectAllAgreeWithOracle(const AttentionCase& c, const std::vector<int32_t>& lengths,
                              const Schedule& schedule) {
  const auto oracle = MakeNaiveOps();
  const auto expected_of = [&](bool keeps_bf16, bool rounds_queries) {
    AttentionCase kept = c;
    kept.keeps_bf16 = keeps_bf16;
    AttentionRun run(*oracle, kept, lengths, 1);
    if (rounds_queries) run.RoundQueries();
    return run.Run(kAtOnce);
  };
  const auto as_floats = expected_of(false, false), as_bf16 = expected_of(true, false),
             rounded = expected_of(true, true);
  auto all_ops = AllCpuOps();
  if (AvailableCpuTargets().front() != CpuTarget::kAmx) {
    all_ops.push_back(MakeOps(CpuTargetName(CpuTarget::kAmxStandIn), 2));
  }
  for (const auto& ops : all_ops) {
    for (const bool keeps_bf16 : {false, true}) {
      AttentionCase tried = c;
      tried.keeps_bf16 = keeps_bf16;
      const bool rounds = keeps_bf16 && RoundsToBf16(*ops);
      const auto& expected = rounds ? rounded : keeps_bf16 ? as_bf16 : as_floats;
      const double bound = Bound(c) + (rounds ? kBf16WeightError * 5 * c.deviation : 0);
      const auto actual = AttentionRun(*ops, tried, lengths, 2).Run(schedule);
      for (size_t row = 0; row < lengths.size(); ++row) {
        ExpectClose(
            actual[row], expected[row], [&](size_t) { return bound; },
            fmt::format("{} {} row {}", ops->Name(), tried.Name(), row));
      }
    }
  }
}

TEST(AttentionTest, AgreesWithOracleOverShapes) {
  const std::vector<AttentionCase> cases = {
      {.num_heads = 2, .num_kv_heads = 2, .head_dim = 64},
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 80, .page_size = 4},
      {.num_heads = 6, .num_kv_heads = 2, .head_dim = 96, .page_size = 1},
      {.num_heads = 4, .num_kv_heads = 1, .head_dim = 128, .page_size = 64},
      {.num_heads = 8, .num_kv_heads = 1, .head_dim = 8, .page_size = 16},
      {.num_heads = 7, .num_kv_heads = 1, .head_dim = 20, .page_size = 32},
      {.num_heads = 3, .num_kv_heads = 1, .head_dim = 16, .page_size = 48},
      {.num_heads = 2, .num_kv_heads = 2, .head_dim = 7, .page_size = 3},
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .page_size = 16, .token_first = true},
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .queries_alone = true},
      // Values narrower and wider than keys: both in pairs of bf16, one of them, none.
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 48, .v_head_dim = 32},
      {.num_heads = 4, .num_kv_heads = 1, .head_dim = 16, .v_head_dim = 80, .queries_alone = true},
      {.num_heads = 3, .num_kv_heads = 3, .head_dim = 32, .v_head_dim = 20},
      {.num_heads = 6, .num_kv_heads = 2, .head_dim = 24, .page_size = 4, .v_head_dim = 16},
      {.num_heads = 2, .num_kv_heads = 1, .head_dim = 7, .page_size = 3, .v_head_dim = 9},
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .token_first = true, .v_head_dim = 40},
      // Values that are the end of the keys.
      {.num_heads = 5, .head_dim = 48, .v_head_dim = 32, .values_in_keys = true},
      {.num_heads = 20, .head_dim = 80, .page_size = 64, .v_head_dim = 64, .values_in_keys = true},
      {.num_heads = 4,
       .num_kv_heads = 2,
       .head_dim = 24,
       .page_size = 4,
       .v_head_dim = 18,
       .values_in_keys = true},
      {.num_heads = 3, .head_dim = 7, .page_size = 1, .v_head_dim = 5, .values_in_keys = true},
  };
  for (const AttentionCase& c : cases) {
    ExpectAllAgreeWithOracle(c, {1, 2, 17, 64, 65, 131}, {{1, 40, 7, 64}});
  }
}

TEST(AttentionTest, AgreesWithOracleOverOptions) {
  MarkSlow("a product of options on every instruction set");
  for (int32_t window : {0, 1, 5, 64, 100}) {
    for (float cap : {0.0f, 2.0f}) {
      for (bool sinks : {false, true}) {
        AttentionCase c = {.num_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim = 16,
                           .sliding_window = window,
                           .logit_softcap = cap,
                           .has_sinks = sinks};
        ExpectAllAgreeWithOracle(c, {150, 33}, {{90, 20}});
        c.head_dim = 24;
        c.page_size = 4;
        ExpectAllAgreeWithOracle(c, {150, 33}, {{90, 20}});
      }
    }
  }
}

// Runs that begin and end inside of tiles and of splits, cross them, and follow each other.
TEST(AttentionTest, TokensOfARunSeeEachOther) {
  const Schedule schedule = {{30, 200}, {170, 3}, {2}, {50}};
  for (int32_t window : {0, 9, 100}) {
    for (int32_t page_size : {1, 16}) {
      const AttentionCase c = {.num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = 16,
                               .page_size = page_size,
                               .sliding_window = window,
                               .has_sinks = window == 9,
                               .runs = {{1, 30}, {30, 131}, {132, 133}, {150, 200}}};
      ExpectAllAgreeWithOracle(c, {252, 200, 140}, schedule);
    }
  }
  const AttentionCase across = {
      .num_heads = 2, .num_kv_heads = 1, .head_dim = 8, .runs = {{400, 1030}}};
  ExpectAllAgreeWithOracle(across, {1060}, {{390}, {650}, {20}});
}

// Scores that depend on how far the key is from the token, before it and behind.
TEST(AttentionTest, DistancesAreAdded) {
  const Schedule schedule = {{30, 200}, {170, 3}, {2}, {50}};
  for (const int32_t head_dim : {8, 24, 64}) {
    for (const bool keeps_bf16 : {false, true}) {
      const AttentionCase c = {.num_heads = 6,
                               .num_kv_heads = 3,
                               .head_dim = head_dim,
                               .page_size = head_dim == 24 ? 1 : 16,
                               .keeps_bf16 = keeps_bf16,
                               .has_distances = true,
                               .runs = {{0, 30}, {30, 131}, {150, 200}}};
      ExpectAllAgreeWithOracle(c, {252, 200, 140}, schedule);
    }
  }
  const AttentionCase across = {
      .num_heads = 2, .num_kv_heads = 2, .head_dim = 8, .has_distances = true, .runs = {{0, 1060}}};
  ExpectAllAgreeWithOracle(across, {1060}, {{1060}});
}

// Two splits of 512 keys and a part.
TEST(AttentionTest, AgreesWithOracleOverLongContexts) {
  for (int32_t window : {0, 600}) {
    const AttentionCase c = {.num_heads = 2,
                             .num_kv_heads = 1,
                             .head_dim = 8,
                             .sliding_window = window,
                             .has_sinks = window > 0};
    ExpectAllAgreeWithOracle(c, {1060}, {{560}, {1}, {499}});
  }
}

// Scores far apart: the running maximum changes, and early keys underflow to weight 0.
TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionCase c = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .deviation = 8.0};
  ExpectAllAgreeWithOracle(c, {200}, {{200}});
}

// A NaN in a key makes every output that sees it NaN, wherever the key is in its tile, and no other
// output. A NaN in a value does so for its element.
TEST(AttentionTest, ANanScoreIsNotHidden) {
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const float cap : {0.0f, 2.0f}) {
      for (const int32_t poisoned : {0, 5, 8, 63, 64, 69}) {
        for (const bool value : {false, true}) {
          for (const int32_t window : {0, 5, 6}) {
            for (const int32_t page_size : {4, 16}) {
              const AttentionCase c = {.num_heads = 2,
                                       .head_dim = 16,
                                       .page_size = page_size,
                                       .sliding_window = window,
                                       .logit_softcap = cap,
                                       .keeps_bf16 = keeps_bf16};
              AttentionRun run(*ops, c, {72}, 1);
              run.Poison(0, poisoned, value);
              const std::vector<float> out = run.Run(kAtOnce)[0];
              const size_t width = 2 * 16;
              for (size_t i = 0; i < out.size(); ++i) {
                const auto token = static_cast<int32_t>(i / width);
                const bool sees = token >= poisoned && (window == 0 || token < poisoned + window);
                ASSERT_EQ(std::isnan(out[i]), sees && (!value || i % 16 == 0))
                    << c.Name() << (value ? " value " : " key ") << poisoned << " token " << token;
              }
            }
          }
        }
      }
    }
  }
}

// The same of keys that hold their values, whose scores are NaN then.
TEST(AttentionTest, ANanInAKeyThatHoldsItsValueIsNotHidden) {
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    const auto ops = MakeOps(CpuTargetName(target), 1);
    for (const int32_t poisoned : {0, 8, 63, 64, 69}) {
      for (const int32_t window : {0, 5}) {
        for (const int32_t v_head_dim : {9, 16}) {  // copied; arranged from rows
          const AttentionCase c = {.num_heads = 15,
                                   .head_dim = 32,
                                   .page_size = 4,
                                   .sliding_window = window,
                                   .keeps_bf16 = keeps_bf16,
                                   .v_head_dim = v_head_dim,
                                   .values_in_keys = true};
          AttentionRun run(*ops, c, {72}, 1);
          run.Poison(0, poisoned, false);
          const std::vector<float> out = run.Run(kAtOnce)[0];
          for (size_t i = 0; i < out.size(); ++i) {
            const auto token = static_cast<int32_t>(i / (15 * static_cast<size_t>(v_head_dim)));
            const bool sees = token >= poisoned && (window == 0 || token < poisoned + window);
            ASSERT_EQ(std::isnan(out[i]), sees) << c.Name() << " key " << poisoned;
          }
        }
      }
    }
  }
}

// A request's results are the same bit for bit whatever may differ between two runs of it.
TEST(AttentionTest, ResultsDependOnTheRequestOnly) {
  MarkSlow("many batches on every instruction set");
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    for (AttentionCase c :
         {AttentionCase{.num_heads = 4, .num_kv_heads = 2, .head_dim = 32},
          {.num_heads = 6, .num_kv_heads = 2, .head_dim = 80},
          {.num_heads = 2, .head_dim = 32, .sliding_window = 70},
          {.num_heads = 4,
          .num_kv_heads = 1,
          .head_dim = 20,
          .sliding_window = 70,
          .logit_softcap = 5,
          .has_sinks = true},
          {.num_heads = 4, .num_kv_heads = 2, .head_dim = 48, .v_head_dim = 32},
          {.num_heads = 2, .head_dim = 20, .v_head_dim = 36},
          {.num_heads = 13, .head_dim = 32, .v_head_dim = 16, .values_in_keys = true},
          {.num_heads = 3, .head_dim = 22, .v_head_dim = 13, .values_in_keys = true}}) {
      c.keeps_bf16 = keeps_bf16;
      const auto one = MakeOps(CpuTargetName(target), 1);
      const auto two = MakeOps(CpuTargetName(target), 2);
      const auto expected = AttentionRun(*one, c, {170}, 1).Run(kAtOnce)[0];
      for (int32_t page_size : {1, 4, 16, 64}) {
        if (!IsLongForm() && (page_size == 1 || page_size == 16) != (c.num_heads % 4 == 0))
          continue;
        c.page_size = page_size;
        for (const Schedule& schedule : {kAtOnce, Schedule{{1}}, Schedule{{7}}, Schedule{{32}}}) {
          Ops& ops = schedule[0][0] == 7 ? *one : *two;
          ExpectSameBits(AttentionRun(ops, c, {170}, 2).Run(schedule)[0], expected, c.Name());
        }
        ExpectSameBits(AttentionRun(*two, c, {170, 90, 200, 3, 64}, 3).Run({{1, 20, 33}})[0],
                       expected, "with batch-mates");
        c.token_first = true;
        ExpectSameBits(AttentionRun(*two, c, {170}, 4).Run(kAtOnce)[0], expected, "token first");
        c.token_first = false;
      }
    }
  }
}

// One long row: two threads compute its splits separately and merge them; the result must have the
// bits of one thread's.
TEST(AttentionTest, SharedOutSplitsMergeToTheSameBits) {
  for (const auto& [target, keeps_bf16] : AttentionTargets()) {
    for (const int32_t v_head_dim : {0, 32, 8}) {
      const AttentionCase c = {.num_heads = 2,
                               .num_kv_heads = 1,
                               .head_dim = 16,
                               .has_sinks = true,
                               .keeps_bf16 = keeps_bf16,
                               .v_head_dim = v_head_dim,
                               .values_in_keys = v_head_dim == 8};
      const Schedule schedule = {{1200}, {1}};
      const auto one = MakeOps(CpuTargetName(target), 1);
      const auto four = MakeOps(CpuTargetName(target), 4);
      ExpectSameBits(AttentionRun(*four, c, {1210}, 1).Run(schedule)[0],
                     AttentionRun(*one, c, {1210}, 2).Run({{300}})[0], one->Name());
    }
  }
}

// One query token for each of `kv_len`, with very many heads of one element. All page table entries
// are the same page, so that long contexts need no memory.
std::vector<float> ManyHeads(Ops& ops, std::vector<int32_t> kv_len) {
  constexpr int32_t kHeads = 4096, kPageSize = 64;
  const auto num_rows = static_cast<int32_t>(kv_len.size());
  const std::vector<int32_t> page_table(
      *std::max_element(kv_len.begin(), kv_len.end()) / kPageSize + 1, 0);
  const std::vector<int32_t> table_row(kv_len.size(), 0);
  std::vector<int32_t> row_begin(kv_len.size() + 1);
  std::iota(row_begin.begin(), row_begin.end(), 0);
  const auto qkv = RandomFloats(int64_t{num_rows} * (kHeads + 2), 1);
  auto storage = RandomFloats(2 * kPageSize, 2);
  OpOutput out(int64_t{num_rows} * kHeads);
  AttentionParams params = {};
  params.qkv = qkv.data();
  params.out = out.data();
  params.kv = {.base = storage.data(),
               .page_stride = 2 * kPageSize,
               .slot_stride = 1,
               .head_stride = kPageSize,
               .v_offset = kPageSize,
               .page_size = kPageSize};
  params.page_table = page_table.data();
  params.table_row = table_row.data();
  params.row_begin = row_begin.data();
  params.kv_len = kv_len.data();
  params.num_rows = num_rows;
  params.num_tokens = num_rows;
  params.num_heads = kHeads;
  params.num_kv_heads = 1;
  params.head_dim = 1;
  params.scale = 1;
  ops.Attention(params);
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

// 295 KB of states for each split: more than the bound, for many rows together and for one row
// alone.
TEST(AttentionTest, MoreSplitsThanMayBeKeptGiveTheSameBits) {
  const auto one = MakeOps("", 1), many = MakeOps("", 48);
  std::vector<int32_t> kv_len(90, 1);
  for (size_t i = 0; i < kv_len.size(); i += 3) kv_len[i] = 513;
  ExpectSameBits(ManyHeads(*many, kv_len), ManyHeads(*one, kv_len), "many rows");
  kv_len = {3, 60000, 1100};
  ExpectSameBits(ManyHeads(*many, kv_len), ManyHeads(*one, kv_len), "one long row");
}

}  // namespace
}  // namespace minisgl::cpu
