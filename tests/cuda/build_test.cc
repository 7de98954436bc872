// The CUDA engine of this build on the machine that runs the tests: it works, or reports why it
// cannot.
#include <gtest/gtest.h>

#include "minisgl/device_ops.h"

namespace minisgl::cuda {
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
    // cuBLAS is the only other thing that may be missing.
    EXPECT_NE(ops.status().message().find("cuBLAS"), std::string::npos) << ops.status().message();
  }
}

}  // namespace
}  // namespace minisgl::cuda
