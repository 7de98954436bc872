// Embedding, GatherRows, RmsNorm, GatedActivation, RopeKvWrite against the oracle.
#include "op_check.h"

namespace minisgl {
namespace {

constexpr int64_t kWidths[] = {1, 7, 16, 33, 64, 257, 704};

TEST(EmbeddingTest, ReadsScaledRowsOfEveryDtype) {
  const auto oracle = MakeNaiveOps();
  const auto table = RandomFloats(37 * 19, 1);
  const TensorView view = View(table, 37, 19);
  const std::vector<int32_t> ids = {0, 36, 5, 5, 17, 16, 15};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto exact = oracle->PackEmbedding(view, dtype);
    ASSERT_TRUE(exact.ok());
    Output expected(7 * 19);
    oracle->Embedding({ids.data(), &*exact, 3.5f, expected.data(), 7});
    for (const auto& ops : AllCpuOps()) {
      const auto packed = ops->PackEmbedding(view, dtype);
      ASSERT_TRUE(packed.ok());
      Output out(7 * 19);
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
    Output out(4 * 21);
    ops->GatherRows({x.data(), rows.data(), out.data(), 4, 21});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(std::memcmp(out.data() + i * 21, x.data() + rows[i] * 21, 21 * sizeof(float)), 0);
    }
    EXPECT_TRUE(out.GuardsIntact());
  }
}

struct NormCase {
  bool has_x, has_residual;
};

TEST(RmsNormTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (int64_t width : kWidths) {
      for (int64_t num_tokens : kTokenCounts) {
        for (const NormCase& c : {NormCase{true, false}, {true, true}, {false, true}}) {
          const int64_t count = num_tokens * width;
          const auto x = RandomFloats(count, 5), weight = RandomFloats(width, 6);
          const auto before = RandomFloats(count, 7);
          auto residual = before, expected_residual = before;
          Output out(count), expected(count);
          const float* input = c.has_x ? x.data() : nullptr;
          ops->RmsNorm({input, c.has_residual ? residual.data() : nullptr, weight.data(),
                        out.data(), num_tokens, width, 1e-5f});
          oracle->RmsNorm({input, c.has_residual ? expected_residual.data() : nullptr,
                           weight.data(), expected.data(), num_tokens, width, 1e-5f});
          const auto name = fmt::format("{} [{}, {}]", ops->Name(), num_tokens, width);
          ExpectSameBits(residual, expected_residual, name);
          // A vector sums at most 256 squares in f32, all of one sign; the root halves their error.
          ExpectClose(
              out.values(), expected.values(),
              [&](size_t i) {
                return (4 + std::min<double>(256, width) / 2) * kEpsilon *
                       std::abs(expected.data()[i]);
              },
              name);
          EXPECT_TRUE(out.GuardsIntact());
        }
      }
    }
  }
}

TEST(RmsNormTest, WorksInPlace) {
  const auto x = RandomFloats(3 * 40, 8), weight = RandomFloats(40, 9);
  for (const auto& ops : AllCpuOps()) {
    Output out(3 * 40);
    ops->RmsNorm({x.data(), nullptr, weight.data(), out.data(), 3, 40, 1e-6f});
    auto in_place = x;
    ops->RmsNorm({in_place.data(), nullptr, weight.data(), in_place.data(), 3, 40, 1e-6f});
    ExpectSameBits(in_place, out.values(), ops->Name());
  }
}

TEST(GatedActivationTest, AgreesWithOracle) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (int64_t width : kWidths) {
        for (int64_t num_tokens : kTokenCounts) {
          const auto gate_up = RandomFloats(num_tokens * 2 * width, 10, 4.0);
          Output out(num_tokens * width), expected(num_tokens * width);
          ops->GatedActivation({gate_up.data(), out.data(), num_tokens, width, activation});
          oracle->GatedActivation({gate_up.data(), expected.data(), num_tokens, width, activation});
          // The argument of the sigmoid is rounded a few times and reaches 100: relative error of
          // exp of it.
          ExpectClose(
              out.values(), expected.values(),
              [&](size_t i) {
                const double gate = std::abs(gate_up[i / width * 2 * width + i % width]);
                const double argument =
                    gate + (activation == Activation::kGeluTanh ? gate * gate * gate : 0);
                return (8 + 4 * argument) * kEpsilon * std::abs(expected.data()[i]) + 1e-30;
              },
              fmt::format("{} [{}, {}]", ops->Name(), num_tokens, width));
          EXPECT_TRUE(out.GuardsIntact());
        }
      }
    }
  }
}

// The exponential inside: at its limits nothing overflows into NaN, and NaN is not hidden.
TEST(GatedActivationTest, ExtremeGates) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> gate_up = {0,      -0.0f,   88.0f,  89.0f, 1e30f,  inf,     -87.0f, -88.5f,
                                -89.0f, -104.0f, -1e30f, nan,   1e-30f, -1e-30f, 20.0f,  -20.0f};
  const int64_t width = static_cast<int64_t>(gate_up.size());
  gate_up.insert(gate_up.end(), width, 1.0f);
  for (const auto& ops : AllCpuOps()) {
    Output out(width);
    ops->GatedActivation({gate_up.data(), out.data(), 1, width, Activation::kSilu});
    for (int64_t i = 0; i < width; ++i) {
      const double x = gate_up[i];
      const double expected = x / (1 + std::exp(-x));
      const std::string what = fmt::format("{}: silu({}) = {}", ops->Name(), x, out.data()[i]);
      if (std::isnan(x) || std::isinf(x)) {
        EXPECT_EQ(std::isnan(out.data()[i]), std::isnan(x)) << what;
      } else {
        EXPECT_NEAR(out.data()[i], expected, 2e-7 * std::abs(expected) + 1e-35) << what;
      }
    }
  }
}

struct RopeShape {
  int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
};

TEST(RopeKvWriteTest, AgreesWithOracleInBothLayouts) {
  const auto oracle = MakeNaiveOps();
  for (const auto& ops : AllCpuOps()) {
    for (const RopeShape& s :
         {RopeShape{4, 2, 64, 64}, {3, 3, 80, 32}, {6, 2, 96, 96}, {2, 1, 6, 6}, {1, 1, 8, 4}}) {
      for (int64_t num_tokens : {1, 5, 40}) {
        const int64_t width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
        const auto before = RandomFloats(num_tokens * width, 11);
        const auto cos = RandomFloats(100 * s.rotary_dim / 2, 12, 0.7);
        const auto sin = RandomFloats(100 * s.rotary_dim / 2, 13, 0.7);
        std::vector<int32_t> positions;
        std::vector<int64_t> slots;
        for (int64_t t = 0; t < num_tokens; ++t) {
          positions.push_back(static_cast<int32_t>(99 - t));
          slots.push_back((t * 7 + 3) % 48);
        }
        const int64_t page = 2 * 4 * s.num_kv_heads * s.head_dim;
        auto qkv = before, expected = before;
        std::vector<float> kv(12 * page, 0.0f), expected_kv(12 * page, 0.0f);
        // Token first, so that the CPU keeps keys as the strides say and storages can be compared.
        const auto layer = [&](float* base) {
          return KvLayer{base,
                         page,
                         int64_t{s.num_kv_heads} * s.head_dim,
                         s.num_kv_heads == 1 ? page : s.head_dim,
                         page / 2,
                         4};
        };
        const auto q_norm = RandomFloats(s.head_dim, 14), k_norm = RandomFloats(s.head_dim, 15);
        const bool norms = num_tokens == 5;
        const auto run = [&](Ops& on, float* data, float* storage) {
          on.RopeKvWrite({data, positions.data(), slots.data(), cos.data(), sin.data(),
                          layer(storage), num_tokens, s.num_heads, s.num_kv_heads, s.head_dim,
                          s.rotary_dim, norms ? q_norm.data() : nullptr,
                          norms ? k_norm.data() : nullptr, 1e-5f});
        };
        run(*ops, qkv.data(), kv.data());
        run(*oracle, expected.data(), expected_kv.data());
        const auto name = fmt::format("{} head_dim {}", ops->Name(), s.head_dim);
        // Weights and normalised values of a few units each.
        const auto bound = [&](size_t) { return (norms ? 32 : 4) * kEpsilon * 16; };
        // Keys and values may stand in qkv as they like afterwards.
        for (int64_t t = 0; t < num_tokens; ++t) {
          const auto queries = [&](const std::vector<float>& of) {
            return std::vector<float>(of.begin() + t * width,
                                      of.begin() + t * width + s.num_heads * s.head_dim);
          };
          ExpectClose(queries(qkv), queries(expected), bound, name);
        }
        if (s.num_kv_heads > 1) ExpectClose(kv, expected_kv, bound, name);
      }
    }
  }
}

}  // namespace
}  // namespace minisgl
