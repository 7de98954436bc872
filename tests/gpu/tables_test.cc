// The engine's tables on the device against their rules: writes of a plan, the tokens of a step,
// and the acceptance of drafts.
#include "gpu/gpu_fixture.h"

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

std::vector<int32_t> Shuffled(Random* random, int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i;
  std::shuffle(values.begin(), values.end(), *random);
  return values;
}

class GpuTablesTest : public GpuTest {
 protected:
  static int NumSeeds() { return IsSlow() ? 3 : 40; }
  static int32_t MaxRows() { return IsSlow() ? 9 : 256; }
};

// Few rows, so that many writes overlap: the later one wins.
TEST_F(GpuTablesTest, PlanWritesAreAppliedInOrder) {
  constexpr int32_t kRows = 3, kStride = 500;
  const auto ops = Make();
  for (int seed = 0; seed < NumSeeds(); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    std::vector<PageTableWrite> page_writes;
    std::vector<TokenPoolWrite> token_writes;
    std::vector<int32_t> values;
    std::vector<int32_t> pages = DrawAll(&random, kRows * kStride, -9, -1), pool = pages;
    const std::vector<int32_t> before = pages;
    for (int i = 0; i < 20; ++i) {
      const int32_t row = Draw(&random, 0, kRows - 1), count = Draw(&random, 0, kStride);
      const int32_t first = Draw(&random, 0, kStride - count);
      const auto offset = static_cast<int32_t>(values.size());
      const auto more = DrawAll(&random, static_cast<size_t>(count), 0, 1 << 30);
      values.insert(values.end(), more.begin(), more.end());
      if (i % 2 == 0) page_writes.push_back({row, first, count, offset});
      if (i % 2 == 1) token_writes.push_back({row, first, count, offset});
      std::copy(more.begin(), more.end(),
                (i % 2 == 0 ? pages : pool).begin() + row * kStride + first);
    }
    const GpuArray device_page_writes(ops.get(), page_writes);
    const GpuArray device_token_writes(ops.get(), token_writes), device_values(ops.get(), values);
    GpuArray device_pages(ops.get(), before), device_pool(ops.get(), before);
    RunTwice(&device_pages, "writes", [&] {
      device_pages.Set(before);
      device_pool.Set(before);
      ops->ApplyPlanWrites({.page_table_writes = device_page_writes.as<PageTableWrite>(),
                            .pages = device_values.i32(),
                            .token_pool_writes = device_token_writes.as<TokenPoolWrite>(),
                            .tokens = device_values.i32(),
                            .num_page_table_writes = static_cast<int32_t>(page_writes.size()),
                            .num_token_pool_writes = static_cast<int32_t>(token_writes.size()),
                            .page_table = device_pages.i32(),
                            .page_table_stride = kStride,
                            .token_pool = device_pool.i32(),
                            .token_pool_stride = kStride});
    });
    EXPECT_EQ(device_pages.Read<int32_t>(), pages) << "seed " << seed;
    EXPECT_EQ(device_pool.Read<int32_t>(), pool) << "seed " << seed;
  }
}

TEST_F(GpuTablesTest, PreparedTokensFollowTheTables) {
  const auto ops = Make();
  for (int seed = 0; seed < NumSeeds(); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const int32_t num_rows = Draw(&random, 1, MaxRows());
    const int32_t page_size = 1 << Draw(&random, 0, 6), max_seq_len = Draw(&random, 300, 900);
    const int64_t pages_per_row = (max_seq_len + page_size - 1) / page_size;
    std::vector<int32_t> table_row = Shuffled(&random, num_rows + 1);
    table_row.resize(static_cast<size_t>(num_rows));
    const size_t table_rows = static_cast<size_t>(num_rows) + 1;
    const auto page_table = DrawAll(&random, table_rows * pages_per_row, 0, (1 << 25) - 1);
    const auto pool = DrawAll(&random, table_rows * max_seq_len, 0, 1 << 20);
    std::vector<int32_t> row_begin = {0}, kv_len, ids, positions;
    std::vector<int64_t> slots;
    for (const int32_t row : table_row) {
      const int32_t extend = Draw(&random, 0, 3) == 0 ? Draw(&random, 1, 300) : 1;
      row_begin.push_back(row_begin.back() + extend);
      kv_len.push_back(Draw(&random, extend, max_seq_len));
      for (int32_t position = kv_len.back() - extend; position < kv_len.back(); ++position) {
        positions.push_back(position);
        ids.push_back(pool[static_cast<size_t>(int64_t{row} * max_seq_len + position)]);
        const int64_t page =
            page_table[static_cast<size_t>(row * pages_per_row + position / page_size)];
        slots.push_back(page * page_size + position % page_size);
      }
    }
    const GpuArray device_table_row(ops.get(), table_row), device_begin(ops.get(), row_begin);
    const GpuArray device_kv_len(ops.get(), kv_len), device_pages(ops.get(), page_table);
    const GpuArray device_pool(ops.get(), pool);
    GpuArray out_ids(ops.get(), ids.size() * 4), out_positions(ops.get(), ids.size() * 4);
    GpuArray out_slots(ops.get(), ids.size() * 8);
    RunTwice(&out_slots, "tokens", [&] {
      ops->PrepareTokens({device_table_row.i32(), device_begin.i32(), device_kv_len.i32(), num_rows,
                          row_begin.back(), device_pages.i32(), pages_per_row, page_size,
                          device_pool.i32(), max_seq_len, out_ids.i32(), out_positions.i32(),
                          out_slots.as<int64_t>()});
    });
    EXPECT_EQ(out_ids.Read<int32_t>(), ids) << "seed " << seed;
    EXPECT_EQ(out_positions.Read<int32_t>(), positions) << "seed " << seed;
    EXPECT_EQ(out_slots.Read<int64_t>(), slots) << "seed " << seed;
  }
}

// The rule of BatchPlan::num_drafts, on row `tokens` of the pool.
int32_t Accept(int32_t kv_len, int32_t num_drafts, const DeviceToken* sampled, int32_t stride,
               int32_t* tokens) {
  const auto is_token = [&](int32_t i) {
    return sampled[i].outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
  };
  const int32_t first = kv_len - num_drafts;
  int32_t accepted = 0;
  while (accepted < num_drafts && is_token(accepted) &&
         sampled[accepted].token == tokens[first + accepted]) {
    ++accepted;
  }
  if (is_token(accepted) && first + accepted < stride) {
    tokens[first + accepted] = sampled[accepted].token;
  }
  return accepted;
}

TEST_F(GpuTablesTest, DraftsAreAcceptedUpToTheFirstThatDiffers) {
  constexpr int32_t kStride = 120;
  const auto ops = Make();
  for (int seed = 0; seed < NumSeeds(); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const int32_t num_rows = Draw(&random, 1, MaxRows());
    std::vector<int32_t> table_row = Shuffled(&random, num_rows + 1);
    table_row.resize(static_cast<size_t>(num_rows));
    auto pool = DrawAll(&random, static_cast<size_t>(num_rows + 1) * kStride, 0, 1);
    const std::vector<int32_t> before = pool;
    std::vector<int32_t> kv_len, place_begin = {0}, expected;
    std::vector<DeviceToken> sampled;
    for (const int32_t row : table_row) {
      const int32_t num_drafts = Draw(&random, -1, 6);  // -1: wants no token
      kv_len.push_back(Draw(&random, 0, 3) == 0 ? kStride : Draw(&random, 7, kStride));
      for (int32_t i = 0; i <= num_drafts; ++i) {
        const bool fails = Draw(&random, 0, 15) == 0;
        const auto outcome = fails ? RowResult::Outcome::kNonFinite : RowResult::Outcome::kToken;
        sampled.push_back({fails ? -1 : Draw(&random, 0, 1), static_cast<int32_t>(outcome), 0, 0});
      }
      expected.push_back(num_drafts < 0 ? 0
                                        : Accept(kv_len.back(), num_drafts,
                                                 sampled.data() + place_begin.back(), kStride,
                                                 pool.data() + row * kStride));
      place_begin.push_back(static_cast<int32_t>(sampled.size()));
    }
    const GpuArray device_table_row(ops.get(), table_row), device_kv_len(ops.get(), kv_len);
    const GpuArray device_begin(ops.get(), place_begin), device_sampled(ops.get(), sampled);
    GpuArray device_pool(ops.get(), before), accepted(ops.get(), expected.size() * 4);
    RunTwice(&accepted, "drafts", [&] {
      device_pool.Set(before);
      ops->AcceptTokens({device_table_row.i32(), device_kv_len.i32(), device_begin.i32(), num_rows,
                         device_sampled.as<DeviceToken>(), device_pool.i32(), kStride,
                         accepted.i32()});
    });
    EXPECT_EQ(accepted.Read<int32_t>(), expected) << "seed " << seed;
    EXPECT_EQ(device_pool.Read<int32_t>(), pool) << "seed " << seed;
  }
}

}  // namespace
}  // namespace minisgl::cuda
