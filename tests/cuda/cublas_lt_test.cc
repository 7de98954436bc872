// The calls to cuBLASLt, with a fake library that computes on the host.
#include "cublas_lt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cublas_lt_fixture.h"
#include "temporary_folder.h"

namespace minisgl::cuda {
namespace {

float Widen(DType dtype, uint16_t bits) {
  return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
}

TEST_F(CublasLtTest, ComputesRowMajorTimesTransposed) {
  ASSERT_NO_FATAL_FAILURE(Open());
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int> small(-4, 4);  // sums of products are exact in every type
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const DType out_dtype : {dtype, DType::kF32}) {
      const MatmulShape shape = {
          .num_tokens = 5, .num_out = 7, .num_in = 6, .dtype = dtype, .out_dtype = out_dtype};
      const auto fill = [&](std::vector<uint16_t>* values) {
        for (uint16_t& value : *values) {
          const auto number = static_cast<float>(small(random));
          value = dtype == DType::kBF16 ? FloatToBf16(number) : FloatToF16(number);
        }
      };
      std::vector<uint16_t> x(30), weight(42);
      fill(&x);
      fill(&weight);
      std::vector<float> out(35, NAN);
      ASSERT_TRUE(library_->Matmul(shape, x.data(), weight.data(), out.data(), nullptr).ok());
      for (int t = 0; t < 5; ++t) {
        for (int o = 0; o < 7; ++o) {
          float sum = 0;
          for (int i = 0; i < 6; ++i) {
            sum += Widen(dtype, x[t * 6 + i]) * Widen(dtype, weight[o * 6 + i]);
          }
          const int at = t * 7 + o;
          const float found = out_dtype == DType::kF32
                                  ? out[at]
                                  : Widen(dtype, reinterpret_cast<const uint16_t*>(out.data())[at]);
          ASSERT_EQ(found, sum) << DTypeName(dtype) << " " << t << " " << o;
        }
      }
    }
  }
}

TEST_F(CublasLtTest, ChoosesOnceForEachBucketOfTokens) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const auto chosen_for = [&](int64_t num_tokens) {
    EXPECT_TRUE(Multiply({.num_tokens = num_tokens, .num_out = 3, .num_in = 2}).ok());
    return seen_->algorithm;
  };
  EXPECT_EQ(chosen_for(17), 24u);
  EXPECT_EQ(chosen_for(24), 24u);
  EXPECT_EQ(chosen_for(18), 24u);
  EXPECT_EQ(num_choices(), 1);
  EXPECT_EQ(chosen_for(25), 32u);
  EXPECT_EQ(chosen_for(136), 136u);
  EXPECT_EQ(chosen_for(256), 256u);
  EXPECT_EQ(chosen_for(257), 320u);
  EXPECT_EQ(chosen_for(600), 640u);
  // Long prompts, too: one algorithm does not serve all of them.
  EXPECT_EQ(chosen_for(2048), 2048u);
  EXPECT_EQ(chosen_for(2049), 2112u);
  EXPECT_EQ(chosen_for(8191), 8192u);
  EXPECT_EQ(num_choices(), 9);
  EXPECT_EQ(seen_->workspace_bytes, kWorkspaceBytes);
  EXPECT_EQ(seen_->reductions, 2u);  // partial sums in f32
}

TEST_F(CublasLtTest, PrepareChoosesBeforeTheFirstProduct) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const MatmulShape shape = {.num_tokens = 20, .num_out = 3, .num_in = 2};
  EXPECT_TRUE(library_->Prepare(shape).ok());
  EXPECT_EQ(num_choices(), 1);
  EXPECT_TRUE(Multiply(shape).ok());
  EXPECT_EQ(num_choices(), 1);
}

TEST_F(CublasLtTest, ChoosesForEachShapeAndType) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const MatmulShape shape = {.num_tokens = 20, .num_out = 3, .num_in = 2};
  MatmulShape other_out = shape, other_in = shape, other_type = shape;
  other_out.num_out = 4;
  other_in.num_in = 5;
  other_type.out_dtype = DType::kF32;
  for (const MatmulShape& each : {shape, other_out, other_in, other_type, shape}) {
    EXPECT_TRUE(Multiply(each).ok());
  }
  EXPECT_EQ(num_choices(), 4);
}

TEST_F(CublasLtTest, ARefusedNumberOfTokensHasAnAlgorithmOfItsOwn) {
  ASSERT_NO_FATAL_FAILURE(Open());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Multiply({.num_tokens = 77, .num_out = 3, .num_in = 2}).ok());
    EXPECT_EQ(seen_->algorithm, 77u);
    EXPECT_EQ(num_choices(), 2);  // for 80, which refused, and for 77
  }
  EXPECT_TRUE(Multiply({.num_tokens = 76, .num_out = 3, .num_in = 2}).ok());
  EXPECT_EQ(seen_->algorithm, 80u);
  EXPECT_EQ(num_choices(), 2);
}

TEST_F(CublasLtTest, ANumberOfTokensThatIsRefusedTwiceIsAnError) {
  ASSERT_NO_FATAL_FAILURE(Open());
  for (int i = 0; i < 3; ++i) {
    const Status status = Multiply({.num_tokens = 91, .num_out = 3, .num_in = 2});
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("[91, 2] x [3, 2]"), std::string::npos) << status.message();
    EXPECT_EQ(num_choices(), 2);
  }
}

// The library fails if it is asked for an algorithm during a capture.
TEST_F(CublasLtTest, DuringACaptureNoAlgorithmIsChosen) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const MatmulShape usual = {.num_tokens = 24, .num_out = 3, .num_in = 2};
  const MatmulShape odd = {.num_tokens = 77, .num_out = 3, .num_in = 2};
  MatmulShape refused = odd, unknown = usual;
  refused.num_out = 5;
  unknown.num_tokens = 32;
  EXPECT_TRUE(Multiply(usual).ok());
  EXPECT_TRUE(Multiply(odd).ok());
  EXPECT_TRUE(library_->Prepare(refused).ok());
  const int before = num_choices();
  library_->SetCapturing(true);
  seen_->capturing = true;
  EXPECT_TRUE(Multiply(usual).ok());
  EXPECT_TRUE(Multiply(odd).ok());
  EXPECT_FALSE(Multiply(refused).ok());
  const Status status = Multiply(unknown);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("before a capture"), std::string::npos) << status.message();
  EXPECT_EQ(num_choices(), before);
  seen_->capturing = false;
  library_->SetCapturing(false);
  EXPECT_TRUE(Multiply(refused).ok());
  EXPECT_TRUE(Multiply(unknown).ok());
}

TEST_F(CublasLtTest, DeterministicUseHasOneWayForAllTokens) {
  ASSERT_NO_FATAL_FAILURE(Open({.deterministic = true}));
  for (const int64_t num_tokens : {1, 9, 128, 1000, 9}) {
    EXPECT_TRUE(Multiply({.num_tokens = num_tokens, .num_out = 3, .num_in = 2}).ok());
    EXPECT_EQ(seen_->algorithm, 128u);
  }
  EXPECT_EQ(num_choices(), 1);
  EXPECT_EQ(seen_->workspace_bytes, 0u);
  EXPECT_EQ(seen_->reductions, 0u);  // none
}

TEST_F(CublasLtTest, DeterministicUseChecksEachNumberOfTokensOnce) {
  ASSERT_NO_FATAL_FAILURE(Open({.deterministic = true}));
  const int before = seen_->num_checks;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Multiply({.num_tokens = 9, .num_out = 3, .num_in = 2}).ok());
  }
  EXPECT_EQ(seen_->num_checks, before + 1);
  const Status status = Multiply({.num_tokens = 77, .num_out = 3, .num_in = 2});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("leave out deterministic"), std::string::npos)
      << status.message();
}

TEST_F(CublasLtTest, AShapeWithoutAWayIsAnError) {
  ASSERT_NO_FATAL_FAILURE(Open());
  const MatmulShape shape = {.num_tokens = 20, .num_out = 13, .num_in = 2};
  for (int i = 0; i < 2; ++i) {
    const Status status = Multiply(shape);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    // The algorithm has the number of its bucket.
    EXPECT_NE(status.message().find("[24, 2] x [13, 2]"), std::string::npos) << status.message();
  }
}

// --- products of e4m3 with scales ----------------------------------------------------------------

class ScaledCublasLtTest : public CublasLtTest {
 protected:
  void OpenOn(int major, int minor) { Open({.compute_major = major, .compute_minor = minor}); }
  // Multiplies small integers by powers of two, so that every sum is exact.
  void ExpectExact(const MatmulShape& shape) {
    const bool has_blocks = shape.scales == MatmulScales::kBlocks;
    const int64_t blocks = has_blocks ? (shape.num_in + 127) / 128 : 1;
    const int64_t stride = has_blocks ? MatmulBlockStride(shape.num_in) : 1;
    const auto codes = [](int64_t count, int64_t step) {
      std::vector<uint8_t> made(static_cast<size_t>(count));
      for (size_t i = 0; i < made.size(); ++i) {
        constexpr uint8_t kCodes[] = {0x38, 0xB8, 0x40, 0x00, 0xC0};  // 1, -1, 2, 0, -2
        made[i] = kCodes[(i * static_cast<size_t>(step) + i / 7) % 5];
      }
      return made;
    };
    const auto powers = [](int64_t count, int first) {
      std::vector<float> made(static_cast<size_t>(count));
      for (size_t i = 0; i < made.size(); ++i) {
        made[i] = std::ldexp(1.0f, first + static_cast<int>(i % 3));
      }
      return made;
    };
    const auto x = codes(shape.num_tokens * shape.num_in, 3);
    const auto weight = codes(shape.num_out * shape.num_in, 2);
    const auto x_scales = powers(shape.num_tokens * blocks, -1);
    const auto weight_scales =
        powers(has_blocks ? (shape.num_out + 127) / 128 * stride : shape.num_out, 0);
    std::vector<float> out(static_cast<size_t>(shape.num_tokens * shape.row_stride()), NAN);
    const Status status = library_->ScaledMatmul(shape,
                                                 {.x = x.data(),
                                                  .x_scales = x_scales.data(),
                                                  .weight = weight.data(),
                                                  .weight_scales = weight_scales.data()},
                                                 out.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int64_t t = 0; t < shape.num_tokens; ++t) {
      for (int64_t o = 0; o < shape.num_out; ++o) {
        float sum = 0;
        for (int64_t k = 0; k < shape.num_in; ++k) {
          const float of_x = x_scales[has_blocks ? k / 128 * shape.num_tokens + t : t];
          const float of_weight = weight_scales[has_blocks ? o / 128 * stride + k / 128 : o];
          sum += E4M3ToFloat(x[t * shape.num_in + k]) * E4M3ToFloat(weight[o * shape.num_in + k]) *
                 of_x * of_weight;
        }
        ASSERT_EQ(out[t * shape.row_stride() + o], sum) << t << " " << o;
      }
    }
  }
  MatmulShape Shape(MatmulScales scales, int64_t num_tokens, int64_t num_out, int64_t num_in) {
    return {.num_tokens = num_tokens,
            .num_out = num_out,
            .num_in = num_in,
            .dtype = DType::kE4M3,
            .out_dtype = DType::kF32,
            .scales = scales};
  }
};

TEST_F(ScaledCublasLtTest, VectorsAndBlocksOfScales) {
  ASSERT_NO_FATAL_FAILURE(OpenOn(9, 0));
  ASSERT_TRUE(library_->HasScaledMatmul());
  ExpectExact(Shape(MatmulScales::kVectors, 19, 20, 64));
  ExpectExact(Shape(MatmulScales::kBlocks, 20, 132, 320));
  MatmulShape apart = Shape(MatmulScales::kBlocks, 4, 12, 16);
  apart.out_stride = 20;
  ExpectExact(apart);
  EXPECT_EQ(seen_->num_scaled, 3);
  // The same library has products without scales beside them.
  EXPECT_TRUE(Multiply({.num_tokens = 20, .num_out = 3, .num_in = 2}).ok());
}

TEST_F(ScaledCublasLtTest, EachKindOfScalesHasItsOwnAlgorithm) {
  ASSERT_NO_FATAL_FAILURE(OpenOn(9, 0));
  for (const MatmulScales scales : {MatmulScales::kVectors, MatmulScales::kBlocks}) {
    EXPECT_TRUE(library_->Prepare(Shape(scales, 24, 16, 64)).ok());
    ExpectExact(Shape(scales, 24, 16, 64));
  }
  EXPECT_EQ(num_choices(), 2);
}

TEST_F(ScaledCublasLtTest, AreOfHopperAndOfVersion12_9) {
  ASSERT_NO_FATAL_FAILURE(OpenOn(9, 0));
  EXPECT_TRUE(library_->HasScaledMatmul());
  for (const auto& [major, minor] : {std::pair(8, 9), std::pair(10, 0), std::pair(12, 0)}) {
    ASSERT_NO_FATAL_FAILURE(OpenOn(major, minor));
    EXPECT_FALSE(library_->HasScaledMatmul());
  }
  seen_->version = 120'804;
  ASSERT_NO_FATAL_FAILURE(OpenOn(9, 0));
  EXPECT_FALSE(library_->HasScaledMatmul());
}

// What the library refuses is an error that names the product.
TEST_F(ScaledCublasLtTest, WhatTheLibraryRefusesIsAnError) {
  ASSERT_NO_FATAL_FAILURE(OpenOn(9, 0));
  for (const MatmulShape& shape :
       {Shape(MatmulScales::kVectors, 20, 16, 24), Shape(MatmulScales::kVectors, 20, 6, 32),
        Shape(MatmulScales::kBlocks, 20, 6, 32)}) {
    EXPECT_FALSE(library_->Prepare(shape).ok());
  }
  alignas(16) const float scales[64] = {};
  alignas(16) const char codes[1024] = {};
  alignas(16) float out[512] = {};
  const MatmulShape odd = Shape(MatmulScales::kBlocks, 18, 16, 16);
  const auto multiply = [&](const MatmulShape& shape, const ScaledOperands& in) {
    return library_->ScaledMatmul(shape, in, out, nullptr);
  };
  const Status status = multiply(odd, {codes, scales, codes, scales});
  EXPECT_NE(status.message().find("[18, 16] x [16, 16]^T, e4m3 to f32"), std::string::npos)
      << status.message();
  const MatmulShape good = Shape(MatmulScales::kBlocks, 16, 16, 16);
  EXPECT_TRUE(multiply(good, {codes, scales, codes, scales}).ok());
  EXPECT_FALSE(multiply(good, {codes + 1, scales, codes, scales}).ok());
  EXPECT_FALSE(multiply(good, {codes, scales + 1, codes, scales}).ok());
  EXPECT_FALSE(multiply(good, {codes, scales, codes, nullptr}).ok());
}

TEST(FindCublasLtTest, AnAbsentLibraryIsUnavailableWithThePlacesAndTheLoadersMessages) {
  const LibraryNames library = {.names = {"libno-such-library.so.1", "libno-such-library.so.2"},
                                .folders = "/some/cuda*/lib64"};
  const auto made = LoadCublasLtOf(library, {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnavailable);
  for (const char* const part : {"libno-such-library.so.1", "libno-such-library.so.2",
                                 "No such file", "/some/cuda*/lib64", "LD_LIBRARY_PATH"}) {
    EXPECT_NE(made.status().message().find(part), std::string::npos) << made.status().message();
  }
}

TEST(FindCublasLtTest, ALibraryOfOtherFunctionsIsUnavailable) {
  const auto made = LoadCublasLtOf({.names = {"libm.so.6"}, .folders = ""}, {});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("cublasLtCreate"), std::string::npos)
      << made.status().message();
}

// Past a file that is no library, as an interrupted installation leaves it.
TEST(FindCublasLtTest, LoadsFromTheFolderOfAPythonPackage) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const std::string package = "lib/python3.12/site-packages/nvidia/cu13/lib";
  fs::create_directories(folder.Path("toolkit/lib64"));
  fs::create_directories(folder.Path("venv/" + package));
  const std::string broken = folder.Write("toolkit/lib64/libcublasLt-fake.so.13", "no library");
  fs::copy_file(MINISGL_FAKE_CUBLAS_LT, folder.Path("venv/" + package + "/libcublasLt-fake.so.13"));
  const std::string soname = "libcublasLt-fake.so.13";
  SearchPlaces places = {.root = folder.Path("root"), .cuda_home = folder.Path("toolkit")};
  const auto without = LoadCublasLtOf(FindLibrary(places, {&soname, 1}), {});
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find(broken), std::string::npos)
      << without.status().message();
  places.path = "/usr/bin:" + folder.Path("venv/bin");
  const auto made = LoadCublasLtOf(FindLibrary(places, {&soname, 1}), {});
  EXPECT_TRUE(made.ok()) << made.status().message();
}

TEST(FindCublasLtTest, TheDriverDecidesWhichVersionsAreTried) {
  const auto newest = CublasLtNames(13000, {.root = "/nowhere"});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->names.size(), 2u);
  const auto older = CublasLtNames(12040, {.root = "/nowhere"});
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->names, std::vector<std::string>{"libcublasLt.so.12"});
  const auto none = CublasLtNames(11080, {.root = "/nowhere"});
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(none.status().message().find("11.8"), std::string::npos) << none.status().message();
}

}  // namespace
}  // namespace minisgl::cuda
