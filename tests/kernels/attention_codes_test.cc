// Attention over codes of 8 bits on the emulator: against the oracle, and token by token against
// itself with other tiles, pages, chunks and thread orders; and the codes that are written.
#include "attention_check.h"
#include "long_form.h"

namespace minisgl::cuda {
namespace {

const std::vector<PagedAttentionRow> kCodedRows = {{1, 1},  {1, 32}, {1, 33}, {1, 150},
                                                   {5, 40}, {3, 3},  {33, 70}};
constexpr int32_t kCodedDecodeRows = 4;

PagedAttentionCase CodedCase(int32_t head_dim, const std::vector<PagedAttentionRow>& rows,
                             int32_t num_decode_rows) {
  PagedAttentionCase c;
  c.head_dim = head_dim;
  c.rows = rows;
  c.num_decode_rows = num_decode_rows;
  c.has_codes = true;
  return c;
}

void ExpectCodedOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  scene.Check(scene.Run(), "codes");
}

TEST(AttentionCodesTest, HeadsMatchTheOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {64, 80, 128, 256, 16, 512}) {
      PagedAttentionCase c = CodedCase(head_dim, kCodedRows, kCodedDecodeRows);
      if (head_dim > 128) c = CodedCase(head_dim, {{1, 60}, {5, 70}}, 1);
      c.dtype = dtype;
      ExpectCodedOracle(c);
    }
  }
}

// Pages of one slot, whose codes are aligned to nothing, up to the largest; values of another
// width.
TEST(AttentionCodesTest, PagesAndValues) {
  for (const int32_t page_size : {1, 2, 4, 16, 64}) {
    for (const int32_t num_kv_heads : {1, 2}) {
      PagedAttentionCase c = CodedCase(64, kCodedRows, kCodedDecodeRows);
      c.page_size = page_size;
      c.num_kv_heads = num_kv_heads;
      ExpectCodedOracle(c);
      c.value_dim = 48;
      ExpectCodedOracle(c);
    }
  }
}

TEST(AttentionCodesTest, GroupsCapsSinksAndPictures) {
  for (const int32_t group : {1, 3, 16, 20, 40}) {
    PagedAttentionCase c = CodedCase(64, {{1, 40}, {3, 70}}, 1);
    c.num_kv_heads = 1;
    c.num_heads = group;
    ExpectCodedOracle(c);
  }
  PagedAttentionCase c = CodedCase(64, kCodedRows, kCodedDecodeRows);
  c.softcap = 3;
  ExpectCodedOracle(c);
  c.sinks = true;
  ExpectCodedOracle(c);
  c = CodedCase(64, {{20, 60}, {9, 9}}, 0);
  c.pictures = {{3, 7}, {22, 5}};
  ExpectCodedOracle(c);
  c.pictures.clear();
  c.rows = {{20, 60}, {9, 12}};
  c.first_key = 1;
  ExpectCodedOracle(c);
}

// Several splits, and cuts of them.
TEST(AttentionCodesTest, LongRows) {
  ExpectCodedOracle(CodedCase(64, {{1, 1300}, {3, 1100}}, 1));
  for (const int32_t num_heads : {4, 32}) {  // tiles of 64 M rows, of both widths
    PagedAttentionCase c = CodedCase(num_heads == 4 ? 64 : 256, {{40, 1100}}, 0);
    c.num_heads = num_heads;
    ExpectCodedOracle(c);
  }
}

TEST(AttentionCodesTest, BoundsGiveTheSame) {
  ExpectBoundsGiveTheSame(CodedCase(64, kCodedRows, kCodedDecodeRows));
}

// A row's last tokens, alone and in other chunks, and its decode row, have the bits of the whole.
TEST(AttentionCodesTest, ATokenDoesNotDependOnItsChunkOrMates) {
  const PagedAttentionScene scene(CodedCase(64, {{40, 90}, {7, 600}, {1, 33}}, 0));
  const auto whole = scene.Run();
  for (const int32_t row : {0, 1, 2}) {
    for (const int32_t last : {1, 3, 1000}) {
      const PagedAttentionScene part = scene.Pick({row}, last == 1 ? 1 : 0, last);
      const int32_t end = scene.row_begin()[static_cast<size_t>(row) + 1];
      EXPECT_EQ(part.Run(), scene.Tokens(whole, end - part.num_tokens(), end))
          << row << " last " << last;
    }
  }
}

// The kernel's codes are those of the oracle, but for numbers so close to a tie that the rounding
// of their rotation decides.
TEST(AttentionCodesTest, WritesTheOraclesCodes) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& [head_dim, page_size] : {std::pair{64, 16}, {128, 4}, {48, 1}, {256, 16}}) {
      constexpr int32_t kTokens = 9, kHeads = 2;
      const int64_t width = int64_t{3} * kHeads * head_dim;
      const int64_t elements = int64_t{page_size} * kHeads * head_dim;
      const int64_t stride = 2 * elements + 2 * kHeads * page_size;
      const DeviceInput input(dtype, RandomFloats(kTokens * width, 5));
      std::vector<int64_t> slots;
      for (int64_t t = 0; t < kTokens; ++t) slots.push_back((t * 7 + 3) % 32);
      const DeviceArray<int64_t> slots_of(slots);
      const DeviceArray<int32_t> positions(std::vector<int32_t>(kTokens, 3));
      const DeviceInput cos(DType::kF32, RandomFloats(8 * head_dim / 2, 6));
      const auto run = [&](uint8_t* pages, ActivationPtr qkv, const auto& launch) {
        launch(RopeKvWriteParams{.qkv = qkv,
                                 .positions = positions.data(),
                                 .slots = slots_of.data(),
                                 .cos = cos.f32(),
                                 .sin = cos.f32(),
                                 .kv = {.base = {pages, DType::kE4M3},
                                        .page_stride = stride,
                                        .slot_stride = head_dim,
                                        .head_stride = int64_t{page_size} * head_dim,
                                        .v_offset = elements,
                                        .page_size = page_size,
                                        .v_slot_stride = head_dim,
                                        .v_head_stride = int64_t{page_size} * head_dim,
                                        .k_scales = 2 * elements,
                                        .v_scales = 2 * elements + kHeads * page_size},
                                 .num_tokens = kTokens,
                                 .num_heads = kHeads,
                                 .num_kv_heads = kHeads,
                                 .head_dim = head_dim,
                                 .rotary_dim = head_dim});
      };
      const auto size = static_cast<size_t>(32 / page_size * stride);
      std::vector<uint8_t> expected(size, 0xAA);
      std::vector<float> floats = input.values();
      run(expected.data(), floats.data(), [&](const auto& p) { MakeNaiveOps()->RopeKvWrite(p); });
      DeviceArray<uint8_t> pages(std::vector<uint8_t>(size, 0xAA));
      DeviceOutput qkv(dtype, input.values());
      KernelDevice device;
      run(pages.data(), qkv.ptr(),
          [&](const auto& p) { EXPECT_EQ(LaunchRopeKvWrite(device.context, p), kCudaSuccess); });
      int64_t differing = 0;
      for (size_t i = 0; i < size; ++i) {
        if (pages.data()[i] == expected[i]) continue;
        ++differing;
        const int gap = std::abs(pages.data()[i] - expected[i]);
        EXPECT_TRUE(static_cast<int64_t>(i) % stride < 2 * elements && gap == 1) << i;
      }
      EXPECT_LE(differing, 2) << head_dim;
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
