// Attention of rows that extend, and of decode rows in deterministic mode, on the emulator: against
// the oracle, and token by token against itself with other chunks, tiles and thread orders.
#include "attention_check.h"
#include "kernels/attention_arguments.h"

namespace minisgl::cuda {
namespace {

PagedAttentionCase ExtendCase(const std::vector<PagedAttentionRow>& rows) {
  PagedAttentionCase c;
  c.dtype = DType::kF16;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = rows;
  return c;
}

void ExpectExtendOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  scene.Check(scene.Run(), "extend");
}

TEST(AttentionExtendTest, ChunksOverCachedPrefixes) {
  for (const DType dtype : kHalfTypes) {
    PagedAttentionCase c =
        ExtendCase({{1, 1}, {64, 64}, {65, 65}, {70, 130}, {2, 257}, {130, 200}});
    c.dtype = dtype;
    ExpectExtendOracle(c);
  }
}

// Few tokens each: the kernel of small tiles.
TEST(AttentionExtendTest, Drafts) {
  for (const DType dtype : kHalfTypes) {
    PagedAttentionCase c = ExtendCase({{5, 5}, {3, 64}, {8, 65}, {1, 17}, {6, 300}, {2, 63}});
    c.dtype = dtype;
    ExpectExtendOracle(c);
  }
}

TEST(AttentionExtendTest, HeadDims) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
      for (const int32_t num_tokens : {4, 40}) {
        PagedAttentionCase c = ExtendCase({{num_tokens, 100}});
        c.dtype = dtype;
        c.head_dim = head_dim;
        ExpectExtendOracle(c);
      }
    }
  }
}

TEST(AttentionExtendTest, QueryHeadsOfAKvHead) {
  for (const int32_t group : {1, 2, 3, 4, 5, 7, 8, 17, 40}) {
    PagedAttentionCase c = ExtendCase({{1, 3}, {33, 66}, {7, 70}});
    c.num_heads = 2 * group;
    c.num_kv_heads = 2;
    c.sinks = true;
    ExpectExtendOracle(c);
  }
}

TEST(AttentionExtendTest, PageSizes) {
  for (const int32_t page_size : {1, 2, 4, 16, 64}) {
    for (const int32_t num_tokens : {3, 50}) {
      PagedAttentionCase c = ExtendCase({{num_tokens, 150}});
      c.page_size = page_size;
      ExpectExtendOracle(c);
    }
  }
}

TEST(AttentionExtendTest, WindowsCapsAndSinks) {
  for (const int32_t window : {0, 1, 30, 100, 5000}) {
    for (const float softcap : {0.0f, 3.0f}) {
      for (const bool sinks : {false, true}) {
        PagedAttentionCase c = ExtendCase({{70, 190}, {4, 200}});
        c.window = window;
        c.softcap = softcap;
        c.sinks = sinks;
        ExpectExtendOracle(c);
      }
    }
  }
}

TEST(AttentionExtendTest, EqualPages) {
  PagedAttentionCase c = ExtendCase({{40, 100}});
  c.same_pages = true;
  ExpectExtendOracle(c);
}

// Decode rows, a padding row (one token, one key), a chunk, drafts.
TEST(AttentionExtendTest, MixedBatch) {
  PagedAttentionCase c = ExtendCase({{1, 40}, {1, 300}, {1, 1}, {50, 90}, {3, 33}});
  c.num_decode_rows = 3;
  c.num_heads = 6;
  c.num_kv_heads = 2;
  const PagedAttentionScene scene(c);
  scene.Check(scene.Run(), "mixed");
  scene.Check(scene.Run(true), "deterministic");
}

// Decode rows and others, none of either, and chunks for either size of tiles.
TEST(AttentionExtendTest, BoundsGiveTheSame) {
  struct Rows {
    std::vector<PagedAttentionRow> rows;
    int32_t num_decode_rows;
  };
  for (const Rows& rows : {Rows{{{1, 40}, {1, 300}, {1, 1}, {50, 90}, {3, 33}}, 3},
                           Rows{{{1, 270}, {1, 64}}, 2}, Rows{{{5, 70}, {40, 40}, {1, 5}}, 0}}) {
    PagedAttentionCase c = ExtendCase(rows.rows);
    c.num_decode_rows = rows.num_decode_rows;
    c.num_heads = 6;
    c.num_kv_heads = 2;
    ExpectBoundsGiveTheSame(c);
  }
}

TEST(AttentionExtendTest, SameUnderEveryThreadOrder) {
  for (const int32_t head_dim : {64, 256}) {
    PagedAttentionCase c = ExtendCase({{1, 20}, {67, 150}});
    c.head_dim = head_dim;
    c.num_heads = 1;
    c.num_decode_rows = 1;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> expected = scene.Run(true);
    scene.Check(expected, "extend");
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      EXPECT_EQ(scene.Run(true), expected) << "order " << order;
    });
  }
}

// The basis of deterministic mode: a token's result is the same bit for bit as a decode row, as one
// of few tokens (small tiles), and as one of many (large tiles, with the masks of other tokens).
TEST(AttentionExtendTest, TokenAloneIsTheSame) {
  for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
    PagedAttentionCase c = ExtendCase({{70, 200}});
    c.dtype = head_dim == 80 ? DType::kF16 : DType::kBF16;
    c.head_dim = head_dim;
    c.num_heads = 3;
    c.window = head_dim == 96 ? 90 : 0;
    c.softcap = head_dim == 96 ? 5.0f : 0;
    c.sinks = head_dim == 128;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> all = scene.Run(true);
    scene.Check(all, "whole");
    const PagedAttentionScene few = scene.Pick({0}, 0, 4), one = scene.Pick({0}, 1, 1);
    ASSERT_EQ(few.num_tokens(), 4);
    EXPECT_EQ(few.Run(true), scene.Tokens(all, 66, 70)) << c.Name();
    EXPECT_EQ(one.Run(true), scene.Tokens(all, 69, 70)) << c.Name();
  }
}

// A prompt chunk cut in two: each token has the result of the uncut chunk.
TEST(AttentionExtendTest, ChunkingIsTheSame) {
  PagedAttentionCase c = ExtendCase({{150, 170}});
  const PagedAttentionScene scene(c);
  const std::vector<unsigned char> all = scene.Run(true);
  for (const int32_t last : {1, 3, 17, 64, 100}) {
    EXPECT_EQ(scene.Pick({0}, 0, last).Run(true), scene.Tokens(all, 150 - last, 150)) << last;
  }
}

TEST(AttentionExtendTest, RowAloneIsTheSame) {
  PagedAttentionCase c = ExtendCase({{1, 70}, {3, 64}, {40, 90}, {1, 33}});
  c.num_decode_rows = 1;
  const PagedAttentionScene scene(c);
  const std::vector<unsigned char> all = scene.Run();
  for (int32_t row = 0; row < 4; ++row) {
    const PagedAttentionScene alone = scene.Pick({row}, row == 0 ? 1 : 0);
    EXPECT_EQ(alone.Run(), scene.Tokens(all, scene.row_begin()[row], scene.row_begin()[row + 1]))
        << "row " << row;
  }
}

// One stage, small tiles because of little shared memory, other numbers of multiprocessors (what is
// cut depends on these: attention_fold_test.cc).
TEST(AttentionExtendTest, SameOnEveryDevice) {
  for (const int32_t head_dim : {128, 256}) {
    PagedAttentionCase c = ExtendCase({{1, 100}, {50, 130}});
    c.num_decode_rows = 1;
    c.head_dim = head_dim;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> expected = scene.Run(true);
    scene.Check(expected, "extend");
    for (const auto& [shared_bytes_max, num_multiprocessors] :
         {std::pair(99 * 1024, 132), {163 * 1024, 4}, {227 * 1024, 1}}) {
      KernelDevice device;
      device.context.shared_bytes_max = static_cast<size_t>(shared_bytes_max);
      device.context.num_multiprocessors = num_multiprocessors;
      EXPECT_EQ(scene.Run(true, &device), expected)
          << shared_bytes_max << " bytes, " << num_multiprocessors << " multiprocessors";
    }
  }
}

TEST(AttentionExtendTest, ChoiceFitsTheDevice) {
  EXPECT_TRUE(ChooseExtend(128, 4, 512, 2, 227 * 1024).large);
  EXPECT_EQ(ChooseExtend(128, 4, 512, 2, 227 * 1024).stages, 2);
  EXPECT_EQ(ChooseExtend(128, 4, 512, 2, 99 * 1024).stages, 1);
  EXPECT_TRUE(ChooseExtend(128, 4, 512, 2, 99 * 1024).large);
  EXPECT_FALSE(ChooseExtend(256, 4, 512, 2, 99 * 1024).large);
  EXPECT_FALSE(ChooseExtend(128, 2, 16 * 5, 16, 227 * 1024).large);
  EXPECT_EQ(SmallExtend(256, 99 * 1024).stages, 1);
  EXPECT_EQ(SmallExtend(256, 227 * 1024).stages, 2);
}

}  // namespace
}  // namespace minisgl::cuda
