// The class and Status of each error of CUDA.
#include "cuda_error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cuda_ops_fixture.h"

namespace minisgl::cuda {
namespace {

struct Expected {
  CudaError number;  // as CUDA's own header has it
  CudaFault fault;
  StatusCode code;
};

class CudaErrorTest : public ::testing::TestWithParam<Expected> {};

TEST_P(CudaErrorTest, BecomesTheStatusOfItsClass) {
  const Expected& expected = GetParam();
  const CudaErrorClass found = ClassifyCudaError(expected.number);
  EXPECT_EQ(found.error, expected.number);
  EXPECT_EQ(found.fault, expected.fault);
  EXPECT_EQ(found.code, expected.code);

  const auto api = MakeEmulatedApi();
  const Status status =
      CudaStatus(api.get(), expected.number, "cudaThisOrThat", "cuda:3 (NVIDIA X)");
  EXPECT_EQ(status.code(), expected.code);
  for (const std::string& part :
       {std::string("cudaThisOrThat"), std::string("cuda:3 (NVIDIA X)"),
        std::string(api->ErrorName(expected.number)), std::string(api->ErrorText(expected.number)),
        std::string(found.advice)}) {
    EXPECT_FALSE(part.empty());
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

constexpr Expected kExpected[] = {
    {1, CudaFault::kOther, StatusCode::kInternal},
    {2, CudaFault::kDoesNotFit, StatusCode::kOutOfMemory},
    {3, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {34, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {35, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {36, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {46, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {98, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {100, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {101, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {209, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {214, CudaFault::kSticky, StatusCode::kUnavailable},
    {220, CudaFault::kSticky, StatusCode::kUnavailable},
    {221, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {222, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {223, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {226, CudaFault::kSticky, StatusCode::kUnavailable},
    {400, CudaFault::kOther, StatusCode::kInternal},
    {700, CudaFault::kSticky, StatusCode::kInternal},
    {701, CudaFault::kOther, StatusCode::kInternal},
    {702, CudaFault::kSticky, StatusCode::kInternal},
    {709, CudaFault::kSticky, StatusCode::kInternal},
    {710, CudaFault::kSticky, StatusCode::kInternal},
    {714, CudaFault::kSticky, StatusCode::kInternal},
    {715, CudaFault::kSticky, StatusCode::kInternal},
    {716, CudaFault::kSticky, StatusCode::kInternal},
    {717, CudaFault::kSticky, StatusCode::kInternal},
    {718, CudaFault::kSticky, StatusCode::kInternal},
    {719, CudaFault::kSticky, StatusCode::kInternal},
    {721, CudaFault::kSticky, StatusCode::kInternal},
    {801, CudaFault::kOther, StatusCode::kInternal},
    {802, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {803, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {804, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {805, CudaFault::kNoUsableDevice, StatusCode::kUnavailable},
    {810, CudaFault::kSticky, StatusCode::kInternal},
    {900, CudaFault::kOther, StatusCode::kInternal},
    {901, CudaFault::kOther, StatusCode::kInternal},
    {911, CudaFault::kSticky, StatusCode::kInternal},
    {999, CudaFault::kSticky, StatusCode::kInternal},
    {12345, CudaFault::kOther, StatusCode::kInternal},  // no error that we know
};

INSTANTIATE_TEST_SUITE_P(All, CudaErrorTest, ::testing::ValuesIn(kExpected),
                         [](const auto& tested) { return std::to_string(tested.param.number); });

TEST(CudaErrorClassesTest, TheTableNamesEachErrorOnceAndAllAreTested) {
  std::set<CudaError> tested, seen;
  for (const Expected& expected : kExpected) tested.insert(expected.number);
  for (const CudaErrorClass& known : CudaErrorClasses()) {
    EXPECT_TRUE(seen.insert(known.error).second) << known.error;
    EXPECT_TRUE(tested.contains(known.error)) << known.error;
    EXPECT_NE(known.fault, CudaFault::kOther) << known.error;
  }
}

TEST(CudaErrorClassesTest, AHardwareFaultNamesTheGpuAndXid) {
  const auto api = MakeEmulatedApi();
  const Status status = CudaStatus(api.get(), 214, "cudaEventSynchronize", "cuda:0 (NVIDIA H200)");
  EXPECT_EQ(ExitCode(status.code()), 69);
  EXPECT_NE(status.message().find("NVIDIA H200"), std::string::npos);
  EXPECT_NE(status.message().find("check dmesg for Xid"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::cuda
