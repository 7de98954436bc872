// Attention whose tokens of one picture see each other, or see none of the first keys, on the
// emulator: against the oracle, and against causal attention where a picture changes nothing.
#include "attention_check.h"

namespace minisgl::cuda {
namespace {

using Picture = PagedAttentionCase::Picture;

PagedAttentionCase PictureCase(const std::vector<PagedAttentionRow>& rows,
                               const std::vector<Picture>& pictures) {
  PagedAttentionCase c;
  c.dtype = DType::kF16;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.rows = rows;
  c.pictures = pictures;
  return c;
}

void ExpectPictureOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  for (const bool deterministic : {false, true}) {
    scene.Check(scene.Run(deterministic), deterministic ? "deterministic" : "pictures");
  }
}

// Pictures at the start of a row, inside and at its end, over prefixes of keys, beside rows of one
// token.
TEST(AttentionPicturesTest, TokensOfAPictureSeeEachOther) {
  for (const DType dtype : kHalfTypes) {
    PagedAttentionCase c = PictureCase({{1, 9}, {1, 70}, {70, 70}, {40, 130}, {90, 257}, {3, 20}},
                                       {{2, 30}, {40, 32}, {80, 24}, {120, 82}});
    c.num_decode_rows = 2;
    c.dtype = dtype;
    ExpectPictureOracle(c);
  }
}

// Tiles of 128 M rows and of 16, and those of wide heads.
TEST(AttentionPicturesTest, HeadDims) {
  for (const int32_t head_dim : {24, 32, 64, 80, 96, 128, 256, 512}) {
    for (const int32_t num_tokens : {6, 40}) {
      PagedAttentionCase c = PictureCase({{num_tokens, 100}}, {{1, num_tokens - 3}});
      c.head_dim = head_dim;
      ExpectPictureOracle(c);
    }
  }
}

TEST(AttentionPicturesTest, QueryHeadsOfAKvHead) {
  for (const int32_t head_dim : {24, 64}) {
    for (const int32_t group : {1, 3, 8, 17}) {
      PagedAttentionCase c = PictureCase({{1, 3}, {33, 66}, {7, 70}}, {{2, 20}, {34, 7}});
      c.head_dim = head_dim;
      c.num_heads = 2 * group;
      c.num_kv_heads = 2;
      c.sinks = true;
      ExpectPictureOracle(c);
    }
  }
}

// A window hides keys before a token, and none after it.
TEST(AttentionPicturesTest, WindowsCapsAndPages) {
  for (const int32_t head_dim : {24, 64}) {
    for (const int32_t window : {1, 30, 100}) {
      for (const int32_t page_size : {1, 4, 16}) {
        PagedAttentionCase c = PictureCase({{70, 190}, {40, 200}}, {{3, 60}, {75, 30}});
        c.head_dim = head_dim;
        c.window = window;
        c.page_size = page_size;
        c.softcap = window == 30 ? 3.0f : 0.0f;
        ExpectPictureOracle(c);
      }
    }
  }
}

// Splits of 512 keys that blocks share: a picture ends in another split than it begins in.
TEST(AttentionPicturesTest, PicturesCrossSplits) {
  for (const int32_t head_dim : {24, 64}) {
    PagedAttentionCase c = PictureCase({{90, 550}, {12, 1030}}, {{20, 60}, {92, 9}});
    c.head_dim = head_dim;
    ExpectPictureOracle(c);
  }
}

// Pictures of one token are text, bit for bit.
TEST(AttentionPicturesTest, PicturesOfOneTokenAreText) {
  for (const int32_t head_dim : {24, 64, 256}) {
    PagedAttentionCase c = PictureCase({{70, 130}, {5, 9}}, {});
    c.head_dim = head_dim;
    const auto text = PagedAttentionScene(c).Run();
    c.pictures = {{7, 1}, {71, 1}};
    EXPECT_EQ(PagedAttentionScene(c).Run(), text) << c.Name();
  }
}

// The first keys of all rows are seen by no token, as layers that draft have it: within a tile of
// keys, up to its end, and past a split.
TEST(AttentionPicturesTest, FirstKeys) {
  for (const int32_t head_dim : {24, 64, 256}) {
    for (const int32_t first_key : {1, 64, 515}) {
      PagedAttentionCase c =
          PictureCase({{1, first_key + 1}, {1, first_key + 90}, {20, first_key + 20}}, {});
      c.head_dim = head_dim;
      c.first_key = first_key;
      ExpectPictureOracle(c);
      c.window = 30;
      ExpectPictureOracle(c);
    }
  }
  PagedAttentionCase c = PictureCase({{70, 590}}, {});
  c.first_key = 5;
  ExpectPictureOracle(c);
}

TEST(AttentionPicturesTest, FirstKeysOfLatentHeads) {
  PagedAttentionCase c = PictureCase({{1, 2}, {1, 70}, {33, 150}}, {});
  c.num_heads = 4;
  c.head_dim = 576;
  c.value_dim = 512;
  c.values_in_keys = true;
  c.first_key = 1;
  ExpectPictureOracle(c);
}

}  // namespace
}  // namespace minisgl::cuda
