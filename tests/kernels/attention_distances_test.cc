// Attention of whole texts whose scores have numbers of distances added, on the emulator: against
// the oracle, and the same bits whatever else a step has.
#include "attention_check.h"

namespace minisgl::cuda {
namespace {

// Texts of so many tokens, each of which sees all of its text.
PagedAttentionCase TextsCase(const std::vector<int32_t>& lengths) {
  PagedAttentionCase c;
  c.dtype = DType::kF16;
  c.num_heads = 3;
  c.num_kv_heads = 3;
  c.distances = true;
  int32_t token = 0;
  for (const int32_t length : lengths) {
    c.rows.push_back({length, length});
    c.pictures.push_back({token, length});
    token += length;
  }
  return c;
}

void ExpectDistancesOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  for (const bool deterministic : {false, true}) {
    scene.Check(scene.Run(deterministic), deterministic ? "deterministic" : "distances");
  }
}

// Large tiles, small ones, and those of wide heads; rows of one token have one key.
TEST(AttentionDistancesTest, ScoresHaveNumbersAdded) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {24, 64}) {
      for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{1, 1, 9, 70}, {5, 17, 3}}) {
        PagedAttentionCase c = TextsCase(lengths);
        c.dtype = dtype;
        c.head_dim = head_dim;
        c.num_decode_rows = static_cast<int32_t>(std::count(lengths.begin(), lengths.end(), 1));
        ExpectDistancesOracle(c);
      }
    }
  }
}

TEST(AttentionDistancesTest, PagesAndGroups) {
  for (const int32_t head_dim : {24, 64}) {
    for (const int32_t page_size : {1, 4}) {
      PagedAttentionCase c = TextsCase({40, 66});
      c.head_dim = head_dim;
      c.page_size = page_size;
      c.num_heads = 4;
      c.num_kv_heads = 2;
      ExpectDistancesOracle(c);
    }
  }
}

// Splits of 512 keys: the last tokens of a text, beside another text.
TEST(AttentionDistancesTest, Splits) {
  for (const int32_t head_dim : {24, 64}) {
    PagedAttentionCase c = TextsCase({30, 9});
    c.rows[0].kv_len = 530;
    c.head_dim = head_dim;
    c.num_heads = c.num_kv_heads = 1;
    ExpectDistancesOracle(c);
  }
}

TEST(AttentionDistancesTest, ATextHasTheSameBitsAlone) {
  for (const int32_t head_dim : {24, 64}) {
    PagedAttentionCase c = TextsCase({33, 70, 9});
    c.head_dim = head_dim;
    const PagedAttentionScene scene(c);
    const auto all = scene.Run(/*deterministic=*/true);
    PagedAttentionScene alone = scene.Pick({1}, 0);
    alone.SeeWholeRows();
    EXPECT_EQ(alone.Run(/*deterministic=*/true), scene.Tokens(all, 33, 103)) << c.Name();
  }
}

}  // namespace
}  // namespace minisgl::cuda
