// CPU operations: the choice of an instruction set, names, memory.
#include <cstring>
#include <new>
#include <vector>

#include "cpu/memory.h"
#include "op_check.h"

namespace minisgl::cpu {
namespace {

TEST(MakeCpuOpsTest, EveryAvailableTargetCanBeForced) {
  const auto targets = AvailableCpuTargets();
  ASSERT_FALSE(targets.empty());
  for (CpuTarget target : targets) {
    const auto ops = MakeCpuOps({.num_threads = 2, .target = CpuTargetName(target)});
    ASSERT_TRUE(ops.ok());
    EXPECT_EQ((*ops)->Name(), fmt::format("cpu ({}, 2 threads)", CpuTargetName(target)));
  }
  EXPECT_EQ(MakeOps("", 1)->Name(), fmt::format("cpu ({}, 1 thread)", CpuTargetName(targets[0])));
}

TEST(MakeCpuOpsTest, UnknownTargetNamesThoseHere) {
  for (const char* name : {"avx1024", "AVX2", "neo\nn", "scalar "}) {
    const auto ops = MakeCpuOps({.num_threads = 1, .target = name});
    ASSERT_FALSE(ops.ok()) << name;
    EXPECT_EQ(ops.status().code(), StatusCode::kUsage);
    EXPECT_EQ(ops.status().message().find('\n'), std::string::npos);
    for (CpuTarget target : AvailableCpuTargets()) {
      EXPECT_NE(ops.status().message().find(CpuTargetName(target)), std::string::npos);
    }
  }
}

TEST(MakeCpuOpsTest, FewRowsOfCodesAreMultipliedAsIntegersBesideTiles) {
  const WeightFormat codes = {DType::kBF16, Quantization::kStored};
  const WeightFormat int4 = {DType::kBF16, Quantization::kInt4};
  const WeightFormat int8 = {DType::kBF16, Quantization::kInt8};
  const bool has_tiles = AvailableCpuTargets().front() == CpuTarget::kAmx;
  for (const WeightFormat& format : {codes, int4, int8}) {
    EXPECT_EQ(CpuTargetForFewRows(format), has_tiles ? "amx_vnni" : "");
  }
  for (const WeightFormat& format : {codes, int4, int8}) {
    EXPECT_TRUE(!has_tiles || CpuRoundsInputsOfCodes("amx_vnni", format));
    EXPECT_TRUE(CpuRoundsInputsOfCodes("scalar", format));
    EXPECT_FALSE(CpuRoundsInputsOfCodes("amx_stand_in", format));
  }
  EXPECT_TRUE(CpuRoundsInputsOfIntegers("scalar", codes));
  EXPECT_FALSE(CpuRoundsInputsOfIntegers("scalar", int8)) << "not codes of a checkpoint";
  EXPECT_FALSE(CpuRoundsInputsOfIntegers("scalar", {DType::kF32, Quantization::kStored}));
  for (const char* const tiles : {"amx_stand_in", "amx", "amx_vnni"}) {
    EXPECT_FALSE(CpuRoundsInputsOfIntegers(tiles, codes)) << tiles;
  }
  EXPECT_EQ(CpuTargetForFewRows(DType::kBF16), "");
  EXPECT_EQ(CpuTargetForFewRows({DType::kF16, Quantization::kInt8}), "");
  EXPECT_EQ(CpuTargetForFewRows({DType::kF32, Quantization::kStored}), "");
}

TEST(MakeCpuOpsTest, NeedsAThread) {
  for (int num_threads : {0, -3}) {
    const auto ops = MakeCpuOps({.num_threads = num_threads, .target = ""});
    ASSERT_FALSE(ops.ok());
    EXPECT_EQ(ops.status().code(), StatusCode::kUsage);
  }
}

// Rows of Q8_0 with an infinite scale: the first one is named, whatever thread finds it.
TEST(CheckNumbersTest, ThreadsFindTheFirstFaultOfAMatrix) {
  constexpr int64_t kOutputs = 700, kInputs = 64;
  const BlockFormat* const format = FindBlockFormat("Q8_0");
  ASSERT_NE(format, nullptr);
  const int64_t row_bytes = kInputs / format->block_elements * format->block_bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(kOutputs * row_bytes));
  const WeightTensor matrix(kOutputs, kInputs, format, bytes.data());
  const auto ops = MakeOps("", 3);
  EXPECT_TRUE(ops->CheckNumbers(matrix).ok());
  constexpr uint16_t kInfinity = 0x7C00;
  for (const int64_t out : {699, 555, 300}) {
    std::memcpy(&bytes[static_cast<size_t>(out * row_bytes)], &kInfinity, sizeof(kInfinity));
    const Status status = ops->CheckNumbers(matrix);
    ASSERT_FALSE(status.ok()) << out;
    EXPECT_EQ(status.message(), matrix.CheckNumbers().message());
    EXPECT_NE(status.message().find(fmt::format("output {},", out)), std::string::npos)
        << status.message();
  }
}

TEST(AllocateTest, MemoryIsZeroedAndAligned) {
  const auto cpu = MakeOps("", 1);
  const auto naive = MakeNaiveOps();
  for (Ops* ops : {cpu.get(), naive.get()}) {
    for (size_t num_bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{5} << 20}) {
      auto memory = ops->Allocate(num_bytes);
      ASSERT_TRUE(memory.ok());
      const auto* bytes = static_cast<const unsigned char*>(memory->get());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0u);
      for (size_t i = 0; i < num_bytes; ++i) ASSERT_EQ(bytes[i], 0) << i << " of " << num_bytes;
    }
  }
}

TEST(AllocateTest, TooMuchIsAnErrorNotACrash) {
  const auto ops = MakeOps("", 1);
  for (size_t num_bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 60}) {
    const auto memory = ops->Allocate(num_bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), StatusCode::kOutOfMemory);
  }
}

// Sizes from small blocks to a few large pages, on both sides of the limit for mapped blocks.
TEST(AllocateTest, MemoryIsZeroedAlignedAndWritableToItsEnd) {
  constexpr size_t kMiB = size_t{1} << 20;
  for (const size_t num_bytes :
       {size_t{1}, kMiB - 1, kMiB, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 7 * kMiB + 4097}) {
    const auto memory = AllocateZeroed(num_bytes);
    ASSERT_TRUE(memory.ok());
    auto* const bytes = static_cast<unsigned char*>(memory->get());
    const size_t alignment = num_bytes >= 2 * kMiB ? 2 * kMiB : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % alignment, 0u) << num_bytes;
    EXPECT_TRUE(std::all_of(bytes, bytes + num_bytes, [](unsigned char b) { return b == 0; }));
    std::fill_n(bytes, num_bytes, 0xFF);
  }
}

TEST(FloatBufferTest, WithoutMemoryItThrowsAndCanBeUsedAgain) {
  FloatBuffer buffer;
  buffer.Reserve(100)[99] = 1;
  for (const size_t count : {SIZE_MAX, SIZE_MAX / 4, size_t{1} << 58}) {
    EXPECT_THROW(buffer.Reserve(count), std::bad_alloc);
  }
  float* const floats = buffer.Reserve(100);  // its previous memory is freed
  ASSERT_NE(floats, nullptr);
  floats[99] = 1;
}

// A tied head is packed once; made-up weights, whose layers have one address, are packed
// separately.
TEST(CpuOpsTest, OnlyEmbeddingAndHeadShare) {
  const std::vector<float> w(40, 1.0f);
  const TensorView view = View(w, 4, 5), other = View(w, 5, 4);
  const auto ops = MakeOps("", 1);
  const auto storage = [](const Result<Matrix>& matrix) { return matrix.value().storage; };
  const auto layer = storage(ops->PackMatrix({&view, 1}, DType::kF32));
  const auto head = storage(ops->PackMatrix({&view, 1}, DType::kF32));
  EXPECT_NE(head, layer);
  EXPECT_EQ(storage(ops->PackEmbedding(view, DType::kF32)), head);
  EXPECT_NE(storage(ops->PackEmbedding(view, DType::kBF16)), head);
  EXPECT_NE(storage(ops->PackEmbedding(other, DType::kF32)), head);
  // Dense ones of a quantized checkpoint, too.
  const WeightFormat stored(DType::kBF16, Quantization::kStored);
  const auto dense_head = storage(ops->PackMatrix({&view, 1}, stored));
  EXPECT_EQ(storage(ops->PackEmbedding(view, stored)), dense_head);
}

// As codes, too: the embedding reads the rows that the head multiplies.
TEST(CpuOpsTest, ATiedHeadOfInt8IsPackedOnce) {
  constexpr int64_t kVocab = 70, kWidth = 40;
  const std::vector<float> w = RandomFloats(kVocab * kWidth, 1);
  const TensorView view = View(w, kVocab, kWidth);
  const WeightFormat format(DType::kBF16, Quantization::kInt8);
  const std::vector<TokenId> ids = {69, 0, 17};
  std::vector<float> first;
  for (const char* const target : {"scalar", "amx_stand_in"}) {
    const auto ops = MakeOps(target, 1);
    const auto table = ops->PackEmbedding(view, format);
    const auto head = ops->PackMatrix({&view, 1}, format);
    ASSERT_TRUE(table.ok() && head.ok());
    EXPECT_EQ(table->storage, head->storage) << target;
    OpOutput out(std::ssize(ids) * kWidth);
    ops->Embedding({.ids = ids.data(),
                    .table = &*table,
                    .scale = 1.0f,
                    .out = out.data(),
                    .num_tokens = std::ssize(ids)});
    if (first.empty()) first = out.values();
    EXPECT_EQ(out.values(), first) << target;
  }
}

// Operations on no rows do nothing: a step may have no row of a kind.
TEST(CpuOpsTest, NoTokensAreNoWork) {
  const std::vector<float> w(20, 1.0f);
  const TensorView view = View(w, 4, 5);
  for (const auto& ops : AllCpuOps()) {
    const auto weight = ops->PackMatrix({&view, 1}, DType::kF32);
    ASSERT_TRUE(weight.ok());
    OpOutput out(4);
    ops->Linear({w.data(), &*weight, nullptr, out.data(), 0});
    ops->Norm({w.data(), nullptr, w.data(), out.data(), 0, 5, 1e-5f});
    ops->GatherRows({w.data(), nullptr, out.data(), 0, 5});
    AttentionParams attention = {};
    attention.num_heads = attention.num_kv_heads = 1;
    attention.head_dim = 4;
    ops->Attention(attention);
    for (float value : out.values()) EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace minisgl::cpu
