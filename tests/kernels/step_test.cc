// The kernels of the engine's tables against their rules on the host, with random cases and every
// thread order.
#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

using Random = std::mt19937_64;

int32_t Draw(Random* random, int32_t low, int32_t high) {
  return std::uniform_int_distribution<int32_t>(low, high)(*random);
}

std::vector<int32_t> DrawAll(Random* random, size_t count, int32_t low, int32_t high) {
  std::vector<int32_t> values(count);
  for (int32_t& value : values) value = Draw(random, low, high);
  return values;
}

// Random writes into a table of `num_rows` rows; few rows, so that many overlap.
template <typename WRITE>
struct Writes {
  Writes(Random* random, int num_writes, int num_rows, int stride, int max_count) {
    for (int i = 0; i < num_writes; ++i) {
      const int32_t count = Draw(random, 0, std::min(max_count, stride));
      writes.push_back({.table_row = Draw(random, 0, num_rows - 1),
                        .first = Draw(random, 0, stride - count),
                        .count = count,
                        .offset = static_cast<int32_t>(values.size())});
      for (int32_t j = 0; j < count; ++j) values.push_back(Draw(random, 0, 1 << 30));
    }
  }
  void Apply(std::vector<int32_t>* table, int stride) const {
    for (const WRITE& write : writes) {
      std::copy_n(values.begin() + write.offset, write.count,
                  table->begin() + write.table_row * stride + write.first);
    }
  }
  std::vector<WRITE> writes;
  std::vector<int32_t> values;
};

void CheckPlanWrites(uint64_t seed, int num_page_writes, int num_token_writes, int max_count) {
  constexpr int kRows = 3, kPageStride = 70, kTokenStride = 900;
  KernelDevice device;
  Random random(seed);
  const Writes<PageTableWrite> pages(&random, num_page_writes, kRows, kPageStride, max_count);
  const Writes<TokenPoolWrite> tokens(&random, num_token_writes, kRows, kTokenStride, max_count);
  std::vector<int32_t> page_table = DrawAll(&random, kRows * kPageStride, -9, -1);
  std::vector<int32_t> token_pool = DrawAll(&random, kRows * kTokenStride, -9, -1);
  GuardedArray<int32_t> device_page_table(page_table), device_token_pool(token_pool);
  const DeviceArray<PageTableWrite> page_writes(pages.writes);
  const DeviceArray<TokenPoolWrite> token_writes(tokens.writes);
  const DeviceArray<int32_t> page_values(pages.values), token_values(tokens.values);
  ASSERT_EQ(LaunchApplyPlanWrites(device.context, {.page_table_writes = page_writes.data(),
                                                   .pages = page_values.data(),
                                                   .token_pool_writes = token_writes.data(),
                                                   .tokens = token_values.data(),
                                                   .num_page_table_writes = num_page_writes,
                                                   .num_token_pool_writes = num_token_writes,
                                                   .page_table = device_page_table.data(),
                                                   .page_table_stride = kPageStride,
                                                   .token_pool = device_token_pool.data(),
                                                   .token_pool_stride = kTokenStride}),
            kCudaSuccess);
  pages.Apply(&page_table, kPageStride);
  tokens.Apply(&token_pool, kTokenStride);
  EXPECT_EQ(device_page_table.values(), page_table) << "seed " << seed;
  EXPECT_EQ(device_token_pool.values(), token_pool) << "seed " << seed;
  EXPECT_TRUE(device_page_table.GuardsIntact());
  EXPECT_TRUE(device_token_pool.GuardsIntact());
}

TEST(PlanWritesKernelTest, LaterWritesWinWhereTheyOverlap) {
  emulator::ForEachOrder(emulator::kNumOrders, [](int order) {
    for (uint64_t seed = 0; seed < 5; ++seed) CheckPlanWrites(8 * seed + order, 5, 4, 70);
  });
}

// Blocks take the writes in any order, the last first among them.
TEST(PlanWritesKernelTest, WritesThatShareOneElement) {
  constexpr int kStride = 600;
  KernelDevice device;
  // Each has its last element, or its first, in common with the next.
  const std::vector<TokenPoolWrite> writes = {{0, 10, 5, 0},     {0, 14, 4, 5},    {0, 17, 1, 9},
                                              {0, 300, 300, 10}, {0, 299, 2, 310}, {0, 18, 3, 312},
                                              {0, 599, 1, 315}};
  std::vector<int32_t> tokens(316);
  for (int32_t i = 0; i < 316; ++i) tokens[i] = i;
  std::vector<int32_t> expected(kStride, -1);
  for (const TokenPoolWrite& write : writes) {
    std::copy_n(tokens.begin() + write.offset, write.count, expected.begin() + write.first);
  }
  const DeviceArray<TokenPoolWrite> device_writes(writes);
  const DeviceArray<int32_t> device_tokens(tokens);
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    GuardedArray<int32_t> pool(std::vector<int32_t>(kStride, -1));
    ASSERT_EQ(LaunchApplyPlanWrites(device.context,
                                    {.page_table_writes = nullptr,
                                     .pages = nullptr,
                                     .token_pool_writes = device_writes.data(),
                                     .tokens = device_tokens.data(),
                                     .num_page_table_writes = 0,
                                     .num_token_pool_writes = static_cast<int32_t>(writes.size()),
                                     .page_table = nullptr,
                                     .page_table_stride = 0,
                                     .token_pool = pool.data(),
                                     .token_pool_stride = kStride}),
              kCudaSuccess);
    EXPECT_EQ(pool.values(), expected) << "order " << order;
  });
}

// With writes and without, in one block and in several.
TEST(PlanWritesKernelTest, TheFrontIsCopied) {
  emulator::ForEachOrder(emulator::kNumOrders, [](int order) {
    for (const int64_t num_bytes : {16, 4080, 4096, 4112, 9000 / 16 * 16}) {
      for (const bool writes : {false, true}) {
        KernelDevice device;
        Random random(static_cast<uint64_t>(num_bytes + order));
        const auto words = DrawAll(&random, static_cast<size_t>(num_bytes / 4), 0, 1 << 30);
        const DeviceArray<int32_t> front(words), tokens(std::vector<int32_t>{7, 8});
        const DeviceArray<TokenPoolWrite> write({{0, 1, 2, 0}});
        GuardedArray<int32_t> copy(static_cast<int64_t>(words.size()));
        GuardedArray<int32_t> pool(std::vector<int32_t>(4, 1));
        ASSERT_EQ(LaunchApplyPlanWrites(device.context, {.page_table_writes = nullptr,
                                                         .pages = nullptr,
                                                         .token_pool_writes = write.data(),
                                                         .tokens = tokens.data(),
                                                         .num_page_table_writes = 0,
                                                         .num_token_pool_writes = writes ? 1 : 0,
                                                         .page_table = nullptr,
                                                         .page_table_stride = 0,
                                                         .token_pool = pool.data(),
                                                         .token_pool_stride = 4,
                                                         .front = front.data(),
                                                         .front_copy = copy.data(),
                                                         .front_bytes = num_bytes}),
                  kCudaSuccess);
        EXPECT_EQ(copy.values(), words) << num_bytes;
        EXPECT_TRUE(copy.GuardsIntact()) << num_bytes;
        const std::vector<int32_t> none = {1, 1, 1, 1}, written = {1, 7, 8, 1};
        EXPECT_EQ(pool.values(), writes ? written : none);
      }
    }
  });
}

TEST(PlanWritesKernelTest, LongAndManyWrites) {
  CheckPlanWrites(100, 0, 3, 900);   // longer than a block
  CheckPlanWrites(101, 300, 0, 20);  // more than a block looks at together
  CheckPlanWrites(102, 1, 0, 0);
  CheckPlanWrites(103, 0, 0, 1);
}

// Rows of the lengths `extend`.
void CheckPrepareTokens(uint64_t seed, const std::vector<int32_t>& extend, int32_t page_size) {
  KernelDevice device;
  Random random(seed);
  const int num_rows = static_cast<int>(extend.size());
  const int32_t max_seq_len = *std::max_element(extend.begin(), extend.end()) + 40;
  const int64_t pages_per_row = (max_seq_len + page_size - 1) / page_size;
  const int table_rows = num_rows + 2;
  std::vector<int32_t> table_row(table_rows), row_begin = {0}, kv_len;
  for (int i = 0; i < table_rows; ++i) table_row[i] = i;
  std::shuffle(table_row.begin(), table_row.end(), random);
  table_row.resize(num_rows);
  for (int32_t length : extend) {
    row_begin.push_back(row_begin.back() + length);
    kv_len.push_back(Draw(&random, std::max(length, 1), max_seq_len));
  }
  const int32_t num_tokens = row_begin.back();
  const auto last_page = static_cast<int32_t>(
      std::min<int64_t>((int64_t{1} << 32) / page_size - 1, std::numeric_limits<int32_t>::max()));
  const std::vector<int32_t> page_table =
      DrawAll(&random, table_rows * pages_per_row, 0, last_page);
  const std::vector<int32_t> token_pool =
      DrawAll(&random, static_cast<size_t>(table_rows) * max_seq_len, 0, 1 << 20);

  const DeviceArray<int32_t> device_table_row(table_row), device_row_begin(row_begin);
  const DeviceArray<int32_t> device_kv_len(kv_len), device_page_table(page_table);
  const DeviceArray<int32_t> device_token_pool(token_pool);
  GuardedArray<int32_t> token_ids(num_tokens), positions(num_tokens);
  GuardedArray<int64_t> slots(num_tokens);
  ASSERT_EQ(LaunchPrepareTokens(device.context, {.table_row = device_table_row.data(),
                                                 .row_begin = device_row_begin.data(),
                                                 .kv_len = device_kv_len.data(),
                                                 .num_rows = num_rows,
                                                 .num_tokens = num_tokens,
                                                 .page_table = device_page_table.data(),
                                                 .page_table_stride = pages_per_row,
                                                 .page_size = page_size,
                                                 .token_pool = device_token_pool.data(),
                                                 .token_pool_stride = max_seq_len,
                                                 .token_ids = token_ids.data(),
                                                 .positions = positions.data(),
                                                 .slots = slots.data()}),
            kCudaSuccess);

  std::vector<int32_t> expected_ids, expected_positions;
  std::vector<int64_t> expected_slots;
  for (int row = 0; row < num_rows; ++row) {
    for (int32_t i = 0; i < extend[row]; ++i) {
      const int32_t position = kv_len[row] - extend[row] + i;
      const int64_t page = page_table[table_row[row] * pages_per_row + position / page_size];
      expected_positions.push_back(position);
      expected_ids.push_back(token_pool[int64_t{table_row[row]} * max_seq_len + position]);
      expected_slots.push_back(page * page_size + position % page_size);
    }
  }
  EXPECT_EQ(token_ids.values(), expected_ids);
  EXPECT_EQ(positions.values(), expected_positions);
  EXPECT_EQ(slots.values(), expected_slots);
  EXPECT_TRUE(token_ids.GuardsIntact() && positions.GuardsIntact() && slots.GuardsIntact());
}

TEST(PrepareTokensKernelTest, MatchesFormula) {
  Random random(1);
  CheckPrepareTokens(1, {1}, 16);
  CheckPrepareTokens(2, std::vector<int32_t>(512, 1), 1);
  CheckPrepareTokens(3, {1, 1, 1, 700, 1, 255, 257}, 16);
  CheckPrepareTokens(4, {3000}, 64);
  CheckPrepareTokens(5, {0, 2, 0, 0, 3, 1, 0}, 3);  // rows without tokens
  for (uint64_t seed = 10; seed < 16; ++seed) {
    const int num_rows = Draw(&random, 2, 300);
    CheckPrepareTokens(seed, DrawAll(&random, num_rows, 1, 9), 1 << Draw(&random, 0, 5));
  }
}

TEST(PrepareTokensKernelTest, SlotsPast31Bits) {
  // Pages of 64 up to 2^26 - 1: slots up to 2^32 - 1.
  CheckPrepareTokens(6, {5, 9, 1}, 64);
}

TEST(PrepareTokensKernelTest, EveryThreadOrderGivesTheSame) {
  emulator::ForEachOrder(emulator::kNumOrders, [](int) {
    CheckPrepareTokens(7, {1, 1, 300, 5, 80}, 16);
  });
}

// Rows of random drafts, of which about `accept` of 8 equal the sampled token.
class AcceptTokensTest : public ::testing::Test {
 protected:
  static constexpr int kStride = 120;

  struct Row {
    int32_t kv_len, num_drafts;  // -1: wants no token
  };

  DeviceToken DrawSampled(int32_t likely, int accept) {
    const bool is_likely = Draw(&random_, 1, 8) <= accept;
    DeviceToken sampled = {.token = is_likely ? likely : Draw(&random_, 100, 200),
                           .outcome = static_cast<int32_t>(RowResult::Outcome::kToken),
                           .logprob = 0,
                           .num_ranks = 0};
    if (Draw(&random_, 1, fail_one_in_) == 1) {
      // A place that failed never equals a draft, even if its token does.
      sampled.outcome = static_cast<int32_t>(RowResult::Outcome::kNonFinite);
      if (Draw(&random_, 0, 1) == 0) sampled.token = -1;
    }
    return sampled;
  }

  Row DrawRow(int max_drafts) {
    const int32_t num_drafts = Draw(&random_, -1, max_drafts);
    const int32_t at_least = std::max(num_drafts + 1, 1);
    return {Draw(&random_, 0, 3) == 0 ? kStride : Draw(&random_, at_least, kStride), num_drafts};
  }

  // The rule of BatchPlan::num_drafts.
  static int32_t Accept(const Row& row, const DeviceToken* sampled, int32_t* tokens) {
    const auto is_token = [&](int32_t i) {
      return sampled[i].outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
    };
    int32_t accepted = 0;
    int32_t* const drafts = tokens + row.kv_len - row.num_drafts;
    while (accepted < row.num_drafts && is_token(accepted) &&
           sampled[accepted].token == drafts[accepted]) {
      ++accepted;
    }
    const int32_t position = row.kv_len - row.num_drafts + accepted;
    if (is_token(accepted) && position < kStride) tokens[position] = sampled[accepted].token;
    return accepted;
  }

  void Check(uint64_t seed, int num_rows, int max_drafts, int accept) {
    random_.seed(seed);
    std::vector<int32_t> pool = DrawAll(&random_, (num_rows + 1) * kStride, 0, 99);
    std::vector<int32_t> table_row(num_rows + 1), kv_len, place_begin = {0}, expected;
    for (int i = 0; i <= num_rows; ++i) table_row[i] = i;
    std::shuffle(table_row.begin(), table_row.end(), random_);
    table_row.resize(num_rows);
    std::vector<DeviceToken> sampled;
    std::vector<int32_t> expected_pool = pool;
    for (int r = 0; r < num_rows; ++r) {
      const Row row = DrawRow(max_drafts);
      for (int32_t i = 0; i <= row.num_drafts; ++i) {
        const int32_t position = row.kv_len - row.num_drafts + i;
        const bool has_draft = i < row.num_drafts;
        sampled.push_back(
            DrawSampled(has_draft ? pool[table_row[r] * kStride + position] : 7, accept));
      }
      kv_len.push_back(row.kv_len);
      expected.push_back(row.num_drafts < 0
                             ? 0
                             : Accept(row, sampled.data() + place_begin.back(),
                                      expected_pool.data() + table_row[r] * kStride));
      place_begin.push_back(static_cast<int32_t>(sampled.size()));
    }
    const DeviceArray<int32_t> device_table_row(table_row), device_kv_len(kv_len);
    const DeviceArray<int32_t> device_place_begin(place_begin);
    const DeviceArray<DeviceToken> device_sampled(sampled);
    GuardedArray<int32_t> device_pool(pool), num_accepted(num_rows), host_accepted(num_rows);
    GuardedArray<DeviceToken> host_sampled(static_cast<int64_t>(sampled.size()));
    const DeviceArray<HostResults> host({{host_sampled.data(), host_accepted.data()}});
    ASSERT_EQ(LaunchAcceptTokens(device_.context, {.table_row = device_table_row.data(),
                                                   .kv_len = device_kv_len.data(),
                                                   .place_begin = device_place_begin.data(),
                                                   .num_rows = num_rows,
                                                   .sampled = device_sampled.data(),
                                                   .token_pool = device_pool.data(),
                                                   .token_pool_stride = kStride,
                                                   .num_accepted = num_accepted.data(),
                                                   .host = host.data()}),
              kCudaSuccess);
    EXPECT_EQ(num_accepted.values(), expected) << "seed " << seed;
    EXPECT_EQ(host_accepted.values(), expected) << "seed " << seed;
    const std::vector<DeviceToken> stored = host_sampled.values();
    for (size_t i = 0; i < sampled.size(); ++i) {
      EXPECT_EQ(std::memcmp(&stored[i], &sampled[i], sizeof(DeviceToken)), 0) << "place " << i;
    }
    EXPECT_TRUE(host_sampled.GuardsIntact() && host_accepted.GuardsIntact()) << "seed " << seed;
    EXPECT_EQ(device_pool.values(), expected_pool) << "seed " << seed;
    EXPECT_TRUE(device_pool.GuardsIntact() && num_accepted.GuardsIntact()) << "seed " << seed;
  }

  KernelDevice device_;
  Random random_;
  int fail_one_in_ = 10;
};

TEST_F(AcceptTokensTest, MatchesTheRule) {
  for (uint64_t seed = 0; seed < 30; ++seed) Check(seed, 1 + seed, 5, 6);
}

TEST_F(AcceptTokensTest, MoreDraftsThanAWarpHasLanes) {
  fail_one_in_ = 100;  // often none among the first 32
  for (uint64_t seed = 100; seed < 130; ++seed) Check(seed, 4, 110, 8);
}

TEST_F(AcceptTokensTest, RowsWithoutDrafts) {
  for (uint64_t seed = 200; seed < 204; ++seed) Check(seed, 257, 0, 4);
}

TEST_F(AcceptTokensTest, EveryThreadOrderMatches) {
  emulator::ForEachOrder(emulator::kNumOrders, [&](int) { Check(300, 40, 6, 7); });
}

TEST(FillKernelTest, WritesEveryWord) {
  KernelDevice device;
  for (int64_t num_words : {0, 1, 255, 256, 257, 1000}) {
    GuardedArray<uint32_t> words(num_words);
    ASSERT_EQ(LaunchFill(device.context, words.data(), 0x12345678u, num_words), kCudaSuccess);
    EXPECT_EQ(words.values(), std::vector<uint32_t>(num_words, 0x12345678u));
    EXPECT_TRUE(words.GuardsIntact());
  }
}

}  // namespace
}  // namespace minisgl::cuda
