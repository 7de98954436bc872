// Decode attention on the emulator: against the oracle, and against itself under other grids,
// batches and thread orders.
#include "attention_check.h"
#include "kernels/attention_arguments.h"
#include "long_form.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

PagedAttentionCase DecodeCase(const std::vector<int32_t>& kv_lens) {
  PagedAttentionCase c;
  for (const int32_t kv_len : kv_lens) c.rows.push_back({1, kv_len});
  c.num_decode_rows = static_cast<int32_t>(kv_lens.size());
  return c;
}

void ExpectDecodeOracle(const PagedAttentionCase& c) {
  const PagedAttentionScene scene(c);
  scene.Check(scene.Run(), "decode");
}

TEST(AttentionDecodeTest, LengthsAroundTilesAndSplits) {
  for (const DType dtype : kHalfTypes) {
    PagedAttentionCase c = DecodeCase({1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 600});
    c.dtype = dtype;
    c.num_heads = 2;
    c.num_kv_heads = 1;
    ExpectDecodeOracle(c);
  }
}

// Splits of 1,024 keys, and those of a row that has longer ones of its own.
TEST(AttentionDecodeTest, LongSplits) {
  KernelDevice device;
  device.context.num_multiprocessors = 1;
  device.context.split_times_max = 4;
  for (const int32_t window : {0, 1000}) {
    for (const int32_t head_dim : {64, 128, 256}) {
      // Each size of a head with a window or without one.
      if (!IsLongForm() && (window == 0) != (head_dim == 128)) continue;
      const bool has_longer = head_dim == 64 || IsLongForm();
      PagedAttentionCase c =
          DecodeCase({1, 255, 1024, 1025, 2600, 700, 700, has_longer ? 33000 : 1100});
      c.num_heads = 3;
      c.num_kv_heads = 1;
      c.window = window;
      c.head_dim = head_dim;
      const PagedAttentionScene scene(c);
      const auto workspace = scene.MakeWorkspace();
      scene.Check(scene.Run(false, &device, workspace.get(), 2), "decode");
      const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
      const int32_t* const items = window > 0 ? plan.window_items : plan.items;
      const int32_t last = plan.counts[window > 0 ? 1 : 0] - 1;
      EXPECT_EQ(items[last * kItemWords + 3], 1024);
      EXPECT_EQ(items[3], has_longer ? 2048 : 1024);
    }
  }
}

TEST(AttentionDecodeTest, HeadDims) {
  for (const DType dtype : kHalfTypes) {
    for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
      PagedAttentionCase c = DecodeCase({33, 300});
      c.dtype = dtype;
      c.head_dim = head_dim;
      ExpectDecodeOracle(c);
    }
  }
}

TEST(AttentionDecodeTest, QueryHeadsOfAKvHead) {
  for (const int32_t group : {1, 2, 3, 4, 5, 7, 8, 17, 40}) {
    PagedAttentionCase c = DecodeCase({20, 290});
    c.dtype = DType::kF16;
    c.num_heads = 2 * group;
    c.sinks = true;
    ExpectDecodeOracle(c);
  }
}

TEST(AttentionDecodeTest, PageSizes) {
  for (const int32_t page_size : {1, 2, 4, 16, 64}) {
    PagedAttentionCase c = DecodeCase({5, 64, 270});
    c.dtype = DType::kF16;
    c.page_size = page_size;
    ExpectDecodeOracle(c);
  }
}

// Windows within a tile, across splits, and longer than a row; splits entirely before a window.
TEST(AttentionDecodeTest, WindowsCapsAndSinks) {
  MarkSlow("a product of options on the emulator");
  for (const int32_t window : {0, 1, 40, 257, 300, 5000}) {
    for (const float softcap : {0.0f, 3.0f}) {
      for (const bool sinks : {false, true}) {
        PagedAttentionCase c = DecodeCase({1, 41, 256, 800});
        c.dtype = DType::kF16;
        c.num_heads = 2;
        c.num_kv_heads = 2;
        c.window = window;
        c.softcap = softcap;
        c.sinks = sinks;
        ExpectDecodeOracle(c);
      }
    }
  }
}

TEST(AttentionDecodeTest, EqualPages) {
  PagedAttentionCase c = DecodeCase({256, 300});
  c.same_pages = true;
  ExpectDecodeOracle(c);
}

// Over 32 * 256 keys splits are longer.
TEST(AttentionDecodeTest, LongRow) {
  PagedAttentionCase c = DecodeCase({8300});
  c.dtype = DType::kF16;
  c.num_heads = 3;
  c.num_kv_heads = 1;
  c.page_size = 64;
  ExpectDecodeOracle(c);
}

TEST(AttentionDecodeTest, SameUnderEveryThreadOrder) {
  for (const int32_t head_dim : {64, 256}) {
    PagedAttentionCase c = DecodeCase({1, 70, 600});
    c.head_dim = head_dim;
    c.num_heads = 3;
    c.num_kv_heads = 1;
    c.sinks = true;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> expected = scene.Run();
    scene.Check(expected, "decode");
    emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
      EXPECT_EQ(scene.Run(), expected) << "order " << order;
    });
  }
}

// Rings of two and three stages, one block that does everything, a block for each item.
TEST(AttentionDecodeTest, SameOnEveryDevice) {
  PagedAttentionCase c = DecodeCase({300, 1, 513, 90});
  c.head_dim = 128;
  const PagedAttentionScene scene(c);
  const std::vector<unsigned char> expected = scene.Run();
  scene.Check(expected, "decode");
  for (const int num_multiprocessors : {1, 3, 500}) {
    for (const size_t shared_bytes_max : {99 * 1024, 163 * 1024, 227 * 1024}) {
      KernelDevice device;
      device.context.num_multiprocessors = num_multiprocessors;
      device.context.shared_bytes_max = shared_bytes_max;
      EXPECT_EQ(scene.Run(false, &device), expected)
          << num_multiprocessors << " multiprocessors, " << shared_bytes_max << " bytes";
    }
  }
}

TEST(AttentionDecodeTest, RowAloneIsTheSame) {
  for (const int32_t window : {0, 200}) {
    PagedAttentionCase c = DecodeCase({300, 1, 700, 64});
    c.window = window;
    c.num_heads = 10;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> all = scene.Run();
    for (int32_t row = 0; row < 4; ++row) {
      EXPECT_EQ(scene.Pick({row}, 1).Run(), scene.Tokens(all, row, row + 1)) << "row " << row;
    }
    const PagedAttentionScene reversed = scene.Pick({3, 2, 1, 0}, 4);
    EXPECT_EQ(reversed.Tokens(reversed.Run(), 1, 2), scene.Tokens(all, 2, 3));
  }
}

// Blocks take works from a counter: whatever the order in which they run, and whether a block's
// works are of one tile or many, results are the same and the counter is zero again.
TEST(AttentionDecodeTest, SameHoweverBlocksTakeWorks) {
  for (const int32_t window : {0, 100}) {
    PagedAttentionCase c = DecodeCase({1, 700, 3, 64, 65, 530, 2, 257, 10, 1});
    c.window = window;
    const PagedAttentionScene scene(c);
    const std::vector<unsigned char> expected = scene.Run();
    scene.Check(expected, "decode");
    const auto workspace = scene.MakeWorkspace();
    const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
    for (const int num_multiprocessors : {1, 2, 5}) {
      KernelDevice device;
      device.context.num_multiprocessors = num_multiprocessors;
      emulator::ForEachOrder(5, [&](int order) {
        // Two layers of a step.
        EXPECT_EQ(scene.Run(false, &device, workspace.get(), 2), expected)
            << num_multiprocessors << " multiprocessors, order " << order;
        EXPECT_EQ(plan.works_taken[0], 0u);
      });
    }
  }
}

// A second layer of the same step finds the workspace in the same state.
TEST(AttentionDecodeTest, CountersReturnToZero) {
  PagedAttentionCase c = DecodeCase({300, 257, 20, 1000});
  c.num_heads = 34;
  const PagedAttentionScene scene(c);
  const auto workspace = scene.MakeWorkspace();
  const std::vector<unsigned char> once = scene.Run(false, nullptr, workspace.get(), 1);
  const DeviceLimits limits = scene.Limits();
  const DeviceAttentionPlan plan = DivideWorkspace(scene.Workspace(workspace.get()));
  const auto expect_zeros = [&] {
    for (int32_t i = 0; i < limits.max_rows * 2 * 2; ++i) EXPECT_EQ(plan.arrived[i], 0u) << i;
  };
  expect_zeros();
  EXPECT_EQ(scene.Run(false, nullptr, workspace.get(), 3), once);
  expect_zeros();
  scene.Check(once, "decode");
}

// A row with infinities: its results are not finite, and those of other rows do not change.
TEST(AttentionDecodeTest, NanStaysInItsRow) {
  for (const bool deterministic : {false, true}) {
    PagedAttentionScene scene(DecodeCase({300, 520, 40}));
    const std::vector<unsigned char> before = scene.Run(deterministic);
    scene.SpoilValue(1, 270);
    const std::vector<unsigned char> after = scene.Run(deterministic);
    EXPECT_EQ(scene.Tokens(after, 0, 1), scene.Tokens(before, 0, 1));
    EXPECT_EQ(scene.Tokens(after, 2, 3), scene.Tokens(before, 2, 3));
    const std::vector<unsigned char> row = scene.Tokens(after, 1, 2);
    for (int64_t i = 0; i < scene.out_width(); ++i) {
      EXPECT_TRUE(std::isnan(LoadElement(row.data(), DType::kBF16, i))) << i;
    }
  }
}

TEST(AttentionDecodeTest, UnknownHeadDimsAreRefused) {
  PagedAttentionCase c = DecodeCase({3});
  const PagedAttentionScene scene(c);
  const auto workspace = scene.MakeWorkspace();
  KernelDevice device;
  AttentionParams params = scene.Params();
  params.qkv.dtype = DType::kBF16;
  params.head_dim = params.v_head_dim = 100;
  EXPECT_EQ(LaunchAttention(device.context, params, scene.Workspace(workspace.get()), false),
            kCudaInvalidValue);
  EXPECT_EQ(LaunchAttention(device.context, params, scene.Workspace(workspace.get()), true),
            kCudaInvalidValue);
}

}  // namespace
}  // namespace minisgl::cuda
