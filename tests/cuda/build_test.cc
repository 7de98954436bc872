// The CUDA engine as this build has it, on whatever machine runs the tests: it answers, and where
// there is nothing to use it says so.
#include <gtest/gtest.h>

#include "minisgl/device_ops.h"

namespace minisgl {
namespace {

void ExpectReason(const Status& status) {
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
  EXPECT_FALSE(status.message().empty());
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(CudaBuildTest, TheProbeAnswers) {
  const auto probed = ProbeCuda(0);
  if (probed.ok()) {
    EXPECT_FALSE(probed->name.empty());
    EXPECT_GT(probed->memory.total_bytes, 0u);
  } else {
    ExpectReason(probed.status());
  }
}

TEST(CudaBuildTest, ADeviceThatNoMachineHasIsRefused) {
  const auto probed = ProbeCuda(1000);
  ASSERT_FALSE(probed.ok());
  ExpectReason(probed.status());
}

TEST(CudaBuildTest, OperationsAreThereIfTheProbeFoundADevice) {
  const auto probed = ProbeCuda(0);
  const auto ops = MakeCudaOps({});
  if (!probed.ok()) {
    ASSERT_FALSE(ops.ok());
    ExpectReason(ops.status());
  } else if (!ops.ok()) {
    // The one other thing it may lack.
    EXPECT_NE(ops.status().message().find("cuBLAS"), std::string::npos) << ops.status().message();
  }
}

}  // namespace
}  // namespace minisgl
