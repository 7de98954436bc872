// Device memory, copies in both directions, and the packing of matrices.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cuda_ops_fixture.h"
#include "slow.h"
#include "stacked_matrix.h"
#include "staging.h"

namespace minisgl::cuda {
namespace {

std::vector<uint8_t> RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 56);
  return bytes;
}

// A tensor at an unaligned address, as in files.
class OddTensor {
 public:
  OddTensor(std::vector<int64_t> shape, DType dtype, uint64_t seed) {
    view_ = {.data = nullptr, .dtype = dtype, .shape = std::move(shape)};
    const auto count = static_cast<size_t>(view_.num_elements());
    bytes_.resize(view_.num_bytes() + 1);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) {
      const float value = normal(random);
      const uint16_t half = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::byte* const at = bytes_.data() + 1 + i * DTypeBytes(dtype);
      if (dtype == DType::kF32) {
        std::memcpy(at, &value, 4);
      } else {
        std::memcpy(at, &half, 2);
      }
    }
    view_.data = bytes_.data() + 1;
  }
  const TensorView& view() const { return view_; }
  std::byte* data() { return bytes_.data() + 1; }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;
};

// The device's 16-bit words for the elements of `parts`, one part after another.
std::vector<uint16_t> Expected16(const std::vector<TensorView>& parts, DType dtype) {
  std::vector<uint16_t> expected;
  for (const TensorView& part : parts) {
    for (int64_t i = 0; i < part.num_elements(); ++i) {
      const float value = part.At(i);
      expected.push_back(dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value));
    }
  }
  return expected;
}

constexpr DType kAllTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(StackedMatrixTest, ReadsEveryPieceOfEveryTypeAsEveryType) {
  const OddTensor a({3, 5}, DType::kF32, 1), b({1, 5}, DType::kBF16, 2), c({4, 5}, DType::kF16, 3);
  const std::vector<TensorView> parts = {a.view(), b.view(), c.view()};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<WeightTensor> tensors = ToWeightTensors(parts);
    const StackedMatrix matrix(tensors, dtype);
    EXPECT_EQ(matrix.num_out(), 8);
    EXPECT_EQ(matrix.num_in(), 5);
    EXPECT_EQ(matrix.num_bytes(), 80u);
    const std::vector<uint16_t> expected = Expected16(parts, dtype);
    for (size_t first = 0; first <= 40; ++first) {
      for (size_t count = 0; first + count <= 40; ++count) {
        std::vector<uint16_t> found(count + 1, 0xABCD);
        matrix.Read(reinterpret_cast<std::byte*>(found.data()), first * 2, count * 2);
        ASSERT_TRUE(std::equal(found.begin(), found.end() - 1, expected.begin() + first));
        ASSERT_EQ(found.back(), 0xABCD);
      }
    }
  }
}

// A quantized part is computed as it is read, in any pieces, beside a dense one.
TEST(StackedMatrixTest, ReadsCodesAsTheirWeights) {
  const std::vector<uint8_t> codes = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};
  const std::vector<float> scales = {0.5f, 3, 0.75f, 0.1f};
  QuantizedWeights weights;
  weights.codes = {
      .data = reinterpret_cast<const std::byte*>(codes.data()), .bits = 4, .other_step = 4};
  weights.numbers = OffsetNumbers(4);
  weights.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::kF32, 1, 8, 4};
  weights.num_groups = 2;
  weights.group_inputs = 4;
  const OddTensor dense({1, 8}, DType::kF16, 5);
  const WeightTensor parts[] = {WeightTensor(2, 8, weights), dense.view()};
  std::vector<float> expected(24);
  for (int64_t row = 0; row < 2; ++row) parts[0].ReadRow(row, expected.data() + row * 8);
  parts[1].ReadRow(0, expected.data() + 16);
  EXPECT_EQ(expected[3], -5 * 0.5f);
  EXPECT_EQ(expected[15], 7 * 0.1f);
  const StackedMatrix matrix(parts, DType::kBF16);
  EXPECT_EQ(matrix.num_out(), 3);
  for (size_t first = 0; first < 24; ++first) {
    for (size_t count = 0; first + count <= 24; ++count) {
      std::vector<uint16_t> found(count);
      matrix.Read(reinterpret_cast<std::byte*>(found.data()), first * 2, count * 2);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(found[i], FloatToBf16(expected[first + i])) << first << " + " << i;
      }
    }
  }
}

TEST(StackedMatrixTest, WidensExactly) {
  for (const DType from : kAllTypes) {
    const OddTensor tensor({2, 7}, from, 4);
    const WeightTensor weights = tensor.view();
    const StackedMatrix matrix({&weights, 1}, DType::kF32);
    std::vector<float> found(14);
    matrix.Read(reinterpret_cast<std::byte*>(found.data()), 0, 56);
    for (int64_t i = 0; i < 14; ++i) EXPECT_EQ(found[i], tensor.view().At(i));
  }
}

class CudaCopiesTest : public CudaOpsFixture {};

TEST_F(CudaCopiesTest, AllocateGivesZeroedMemoryThatGoesBack) {
  auto ops = MakeReserved();
  const auto before = api_->live();
  {
    const auto memory = ops->Allocate(1000);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(Get<uint8_t>(ops.get(), memory->get(), 1000), std::vector<uint8_t>(1000, 0));
    const auto host = ops->AllocateHost(100);
    ASSERT_TRUE(host.ok());
    const auto* const bytes = static_cast<const uint8_t*>(host->get());
    EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 100), std::vector<uint8_t>(100, 0));
    EXPECT_EQ(api_->live().device_pieces, before.device_pieces + 1);
  }
  EXPECT_EQ(api_->live(), before);
}

TEST_F(CudaCopiesTest, AllocateOfZeroBytesReturnsMemory) {
  auto ops = MakeReserved();
  const auto memory = ops->Allocate(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(memory->get(), nullptr);
}

TEST_F(CudaCopiesTest, MemoryAndEventsOutliveTheOperations) {
  auto ops = MakeReserved();
  auto memory = ops->Allocate(10);
  auto host = ops->AllocateHost(10);
  auto event = ops->MakeEvent();
  ASSERT_TRUE(ops->BeginCapture().ok());
  auto graph = ops->EndCapture();
  ASSERT_TRUE(memory.ok() && host.ok() && event.ok() && graph.ok());
  ops.reset();
  EXPECT_EQ(
      api_->live(),
      (EmulatedCudaApi::Live{.device_pieces = 1, .host_pieces = 1, .events = 1, .graph_execs = 1}));
  std::weak_ptr<EmulatedCudaApi> watched = api_;
  api_.reset();
  EXPECT_FALSE(watched.expired());
  *memory = nullptr;
  *host = nullptr;
  *event = nullptr;
  EXPECT_FALSE(watched.expired());
  *graph = nullptr;
  EXPECT_TRUE(watched.expired());
}

TEST_F(CudaCopiesTest, UploadsOfEverySizeArriveThoughTheSourceChangesAtOnce) {
  MarkSlow("uploads of every size");
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  constexpr size_t kChunk = Staging::kChunkBytes;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3}, size_t{4097}, kChunk - 1, kChunk,
                            kChunk + 1, 3 * kChunk + 5}) {
    const std::vector<uint8_t> bytes = RandomBytes(size + 1, size);
    std::vector<uint8_t> source = bytes;
    const auto memory = ops->Allocate(size + 1);
    ASSERT_TRUE(memory.ok());
    auto* const device = static_cast<uint8_t*>(memory->get());
    ASSERT_TRUE(ops->Upload(device, source.data() + 1, size).ok());
    std::fill(source.begin(), source.end(), uint8_t{0xEE});
    std::vector<uint8_t> expected(bytes.begin() + 1, bytes.end());
    expected.push_back(0);
    ASSERT_TRUE(Get<uint8_t>(ops.get(), device, size + 1) == expected) << size;
  }
  EXPECT_EQ(api_->num_calls("MallocHost"), 2 + 8);  // two chunks, and Get's
}

// The host fills chunks while a copy runs: it waits for a chunk only before it uses it again.
TEST_F(CudaCopiesTest, AnUploadOfTwoChunksWaitsForNothing) {
  auto ops = MakeReserved();
  const auto memory = ops->Allocate(4 * Staging::kChunkBytes);
  ASSERT_TRUE(memory.ok());
  const std::vector<uint8_t> bytes(4 * Staging::kChunkBytes, 1);
  ASSERT_TRUE(ops->Upload(memory->get(), bytes.data(), 2 * Staging::kChunkBytes).ok());
  EXPECT_EQ(api_->num_calls("EventSynchronize"), 0);
  EXPECT_EQ(api_->num_calls("StreamSynchronize"), 0);
  ASSERT_TRUE(ops->Upload(memory->get(), bytes.data(), bytes.size()).ok());
  EXPECT_EQ(api_->num_calls("EventSynchronize"), 4);
}

TEST_F(CudaCopiesTest, ACopyToTheHostWaitsForAllQueuedWork) {
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  const std::vector<int32_t> values = {1, 2, 3, 4};
  const auto device = Put<int32_t>(ops.get(), {0, 0, 0, 0});
  const auto in = ops->AllocateHost(16), out = ops->AllocateHost(16);
  auto event = ops->MakeEvent();
  ASSERT_TRUE(in.ok() && out.ok() && event.ok());
  std::memcpy(in->get(), values.data(), 16);
  ops->CopyToDevice(device.get(), in->get(), 16);
  ops->CopyToHost(out->get(), device.get(), 16);
  ops->Record(event->get());
  EXPECT_NE(std::memcmp(out->get(), values.data(), 16), 0);  // lazy: nothing has run
  ASSERT_TRUE(ops->Wait(event->get()).ok());
  EXPECT_EQ(std::memcmp(out->get(), values.data(), 16), 0);
}

TEST_F(CudaCopiesTest, ACopyToTheDeviceRunsBesideEarlierOperations) {
  api_ = MakeEmulatedApi({.lazy_compute = true});
  auto ops = MakeReserved();
  const auto a = Put<int32_t>(ops.get(), {1}), b = Put<int32_t>(ops.get(), {2});
  const auto c = Put<int32_t>(ops.get(), {3});
  const auto in = ops->AllocateHost(4);
  ASSERT_TRUE(in.ok() && ops->Synchronize().ok());
  const std::vector<int32_t> values = {7};
  std::memcpy(in->get(), values.data(), 4);
  ops->CopyOnDevice(b.get(), a.get(), 4);
  ops->CopyToDevice(c.get(), in->get(), 4);
  ops->CopyOnDevice(a.get(), c.get(), 4);
  const auto value = [](const std::shared_ptr<void>& memory) {
    return *static_cast<const int32_t*>(memory.get());  // the emulated device is the host
  };
  EXPECT_EQ(value(b), 2) << "nothing was waited for";
  EXPECT_EQ(value(c), 7);
  ASSERT_TRUE(ops->Synchronize().ok());
  EXPECT_EQ(value(b), 1);
  EXPECT_EQ(value(a), 7);
}

TEST_F(CudaCopiesTest, ACopyToTheDeviceFollowsAllocateAndUpload) {
  for (const bool uploaded : {false, true}) {
    api_ = MakeEmulatedApi({.lazy_compute = true});
    auto ops = MakeReserved();
    const auto in = ops->AllocateHost(4);
    ASSERT_TRUE(in.ok());
    std::memset(in->get(), 5, 4);
    const auto memory = ops->Allocate(4);
    ASSERT_TRUE(memory.ok());
    if (uploaded) ASSERT_TRUE(ops->Upload(memory->get(), "abcd", 4).ok());
    ops->CopyToDevice(memory->get(), in->get(), 4);
    EXPECT_EQ(Get<uint8_t>(ops.get(), memory->get(), 4), std::vector<uint8_t>(4, 5));
  }
}

TEST_F(CudaCopiesTest, AnEventWithoutDownloadsIsOneCall) {
  auto ops = MakeReserved();
  const auto device = Put<int32_t>(ops.get(), {0});
  const auto host = ops->AllocateHost(4);
  auto event = ops->MakeEvent();
  ASSERT_TRUE(host.ok() && event.ok());
  const auto calls = [&](const auto& queue) {
    const int before = api_->num_calls("EventRecord") + api_->num_calls("StreamWaitEvent");
    queue();
    ops->Record(event->get());
    return api_->num_calls("EventRecord") + api_->num_calls("StreamWaitEvent") - before;
  };
  EXPECT_EQ(calls([&] { ops->CopyToHost(host->get(), device.get(), 4); }), 3);
  EXPECT_EQ(calls([&] { ops->CopyOnDevice(device.get(), device.get(), 4); }), 1);
}

TEST_F(CudaCopiesTest, AnEventCoversTheComputeStreamToo) {
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  const std::vector<int32_t> values = {7};
  const auto device = Put<int32_t>(ops.get(), {0});
  const auto in = ops->AllocateHost(4);
  auto event = ops->MakeEvent();
  ASSERT_TRUE(in.ok() && event.ok());
  std::memcpy(in->get(), values.data(), 4);
  ops->CopyToDevice(device.get(), in->get(), 4);
  ops->Record(event->get());
  ASSERT_TRUE(ops->Wait(event->get()).ok());
  EXPECT_EQ(*static_cast<const int32_t*>(device.get()), 7);  // the emulated device is the host
}

TEST_F(CudaCopiesTest, CopiesOnTheDeviceAreInTheOrderOfTheCalls) {
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  const auto a = Put<int32_t>(ops.get(), {1, 2}), b = Put<int32_t>(ops.get(), {3, 4});
  ops->CopyOnDevice(b.get(), a.get(), 8);
  ASSERT_TRUE(ops->Upload(a.get(), std::vector<int32_t>{5, 6}.data(), 8).ok());
  EXPECT_EQ(Get<int32_t>(ops.get(), b.get(), 2), (std::vector<int32_t>{1, 2}));
}

TEST_F(CudaCopiesTest, EventsTellTheTimeBetweenThem) {
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  const auto memory = Put<int32_t>(ops.get(), {1, 2, 3, 4});
  auto begin = ops->MakeEvent(), end = ops->MakeEvent();
  ASSERT_TRUE(begin.ok() && end.ok());
  ops->Record(begin->get());
  ops->CopyOnDevice(memory.get(), static_cast<int32_t*>(memory.get()) + 2, 8);
  ops->Record(end->get());
  ASSERT_TRUE(ops->Wait(begin->get()).ok());
  ASSERT_TRUE(ops->Wait(end->get()).ok());
  const auto elapsed = ops->ElapsedMs(begin->get(), end->get());
  ASSERT_TRUE(elapsed.ok());
  EXPECT_GT(*elapsed, 0);
}

TEST_F(CudaCopiesTest, WaitingForAnEventNeverRecordedReturnsAtOnce) {
  auto ops = MakeReserved();
  auto event = ops->MakeEvent();
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(ops->Wait(event->get()).ok());
}

TEST_F(CudaCopiesTest, PackedMatricesHaveTheTypeOfTheActivations) {
  const OddTensor a({3, 4}, DType::kF32, 1), b({2, 4}, DType::kF16, 2), c({5, 4}, DType::kBF16, 3);
  const std::vector<TensorView> parts = {a.view(), b.view(), c.view()};
  for (const DType activation : {DType::kBF16, DType::kF16}) {
    auto ops = MakeReserved({.activation_dtype = activation});
    EXPECT_EQ(ops->activation_dtype(), activation);
    for (const DType asked : kAllTypes) {
      const auto matrix = ops->PackMatrix(parts, asked);
      ASSERT_TRUE(matrix.ok());
      EXPECT_EQ(matrix->num_out, 10);
      EXPECT_EQ(matrix->num_in, 4);
      EXPECT_EQ(matrix->dtype, activation);
      EXPECT_EQ(Get<uint16_t>(ops.get(), matrix->storage.get(), 40), Expected16(parts, activation));
    }
  }
}

TEST_F(CudaCopiesTest, AMatrixOfSeveralChunksIsWhole) {
  MarkSlow("a matrix of several chunks");
  api_ = MakeEmulatedApi({.lazy = true});
  auto ops = MakeReserved();
  // 3 x 2.4 M elements of 2 bytes: almost two chunks, with a part's end within each.
  const OddTensor a({2, 2400000}, DType::kF32, 1), b({1, 2400000}, DType::kBF16, 2);
  const std::vector<TensorView> parts = {a.view(), b.view()};
  const auto matrix = ops->PackMatrix(parts, DType::kBF16);
  ASSERT_TRUE(matrix.ok());
  EXPECT_TRUE(Get<uint16_t>(ops.get(), matrix->storage.get(), 7200000) ==
              Expected16(parts, DType::kBF16));
}

TEST_F(CudaCopiesTest, ATiedHeadSharesTheEmbedding) {
  auto ops = MakeReserved();
  const OddTensor table({20, 8}, DType::kF32, 1), other({20, 8}, DType::kF32, 2);
  const auto embedding = ops->PackEmbedding(table.view(), DType::kBF16);
  const auto head = ops->PackMatrix({&table.view(), 1}, DType::kBF16);
  const auto apart = ops->PackMatrix({&other.view(), 1}, DType::kBF16);
  ASSERT_TRUE(embedding.ok() && head.ok() && apart.ok());
  EXPECT_EQ(embedding->storage, head->storage);
  EXPECT_NE(embedding->storage, apart->storage);
}

TEST_F(CudaCopiesTest, AViewWithOtherContentsIsPackedAgain) {
  auto ops = MakeReserved();
  OddTensor table({20, 8}, DType::kBF16, 1);
  const auto first = ops->PackEmbedding(table.view(), DType::kBF16);
  table.data()[317] ^= std::byte{1};
  const auto second = ops->PackMatrix({&table.view(), 1}, DType::kBF16);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->storage, second->storage);
  EXPECT_EQ(Get<uint16_t>(ops.get(), second->storage.get(), 160),
            Expected16({table.view()}, DType::kBF16));
}

TEST_F(CudaCopiesTest, AFreedMatrixIsNotShared) {
  auto ops = MakeReserved();
  const OddTensor table({20, 8}, DType::kBF16, 1);
  const int before = api_->live().device_pieces;
  ASSERT_TRUE(ops->PackEmbedding(table.view(), DType::kBF16).ok());
  EXPECT_EQ(api_->live().device_pieces, before);
  const auto again = ops->PackEmbedding(table.view(), DType::kBF16);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(api_->live().device_pieces, before + 1);
}

}  // namespace
}  // namespace minisgl::cuda
