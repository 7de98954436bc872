// Embedding, GatherRows, Softcap against the oracle and against values computed by hand.
#include "op_check.h"

namespace minisgl::cpu {
namespace {

TEST(EmbeddingTest, ReadsScaledRowsOfEveryDtype) {
  const auto oracle = MakeNaiveOps();
  const auto table = RandomFloats(37 * 19, 1);
  const TensorView view = View(table, 37, 19);
  const std::vector<int32_t> ids = {0, 36, 5, 5, 17, 16, 15};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto exact = oracle->PackEmbedding(view, dtype);
    ASSERT_TRUE(exact.ok());
    OpOutput expected(7 * 19);
    oracle->Embedding({ids.data(), &*exact, 3.5f, expected.data(), 7});
    for (const auto& ops : AllCpuOps()) {
      const auto packed = ops->PackEmbedding(view, dtype);
      ASSERT_TRUE(packed.ok());
      OpOutput out(7 * 19);
      ops->Embedding({ids.data(), &*packed, 3.5f, out.data(), 7});
      ExpectSameBits(out.values(), expected.values(), ops->Name());
      EXPECT_TRUE(out.GuardsIntact());
    }
  }
}

TEST(EmbeddingTest, TiedHeadSharesStorage) {
  const auto table = RandomFloats(40 * 8, 2), other = RandomFloats(40 * 8, 3);
  const TensorView view = View(table, 40, 8), other_view = View(other, 40, 8);
  const auto ops = MakeOps("", 1);
  const auto embedding = ops->PackEmbedding(view, DType::kBF16);
  const auto head = ops->PackMatrix({&view, 1}, DType::kBF16);
  const auto separate = ops->PackMatrix({&other_view, 1}, DType::kBF16);
  ASSERT_TRUE(embedding.ok() && head.ok() && separate.ok());
  EXPECT_EQ(embedding->storage, head->storage);
  EXPECT_NE(embedding->storage, separate->storage);
}

TEST(GatherRowsTest, CopiesRows) {
  const auto x = RandomFloats(9 * 21, 4);
  const std::vector<int32_t> rows = {8, 0, 3, 3};
  for (const auto& ops : AllCpuOps()) {
    OpOutput out(4 * 21);
    ops->GatherRows({x.data(), rows.data(), out.data(), 4, 21});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(std::memcmp(out.data() + i * 21, x.data() + rows[i] * 21, 21 * sizeof(float)), 0);
    }
    EXPECT_TRUE(out.GuardsIntact());
  }
}

std::vector<float> Capped(Ops& ops, std::vector<float> values, float cap) {
  ops.Softcap({values.data(), std::ssize(values), cap});
  return values;
}

TEST(SoftcapTest, ByHand) {
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& ops : all) {
    // tanh(1) = 0.761594156, tanh(1/2) = 0.462117157
    const auto out = Capped(*ops, {0, 30, -30, 15, 3e-6f, 1e9f, -inf, inf, std::nanf("")}, 30);
    const float expected[] = {0, 22.84782468f, -22.84782468f, 13.86351471f, 3e-6f, 30, -30, 30};
    for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(out[i], expected[i]) << ops->Name() << " " << i;
    EXPECT_TRUE(std::isnan(out[8])) << ops->Name() << " " << out[8];
  }
}

TEST(SoftcapTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const int64_t count : {1, 5, 17, 1000, 5000}) {
      for (const double deviation : {0.01, 3.0, 40.0}) {
        const auto values = RandomFloats(count, 31, deviation);
        const auto expected = Capped(*oracle, values, 30);
        ExpectClose(
            Capped(*ops, values, 30), expected,
            [&](size_t i) { return 6 * kEpsilon * std::abs(expected[i]); },
            fmt::format("{} {} {}", ops->Name(), count, deviation));
      }
    }
  }
}

TEST(SoftcapTest, AValueAloneHasTheBitsItHasAmongOthers) {
  const auto values = RandomFloats(5003, 32, 20);
  for (const auto& ops : AllCpuOps()) {
    const auto all = Capped(*ops, values, 15);
    for (const size_t i : {0, 5, 1023, 2047, 2048, 4999, 5002}) {
      ExpectSameBits(Capped(*ops, {values[i]}, 15), {all[i]}, ops->Name());
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
