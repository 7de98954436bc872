// A sum over ranks lets the next kernel begin while it waits for other ranks, unless two ranks
// share a device: the next kernel could take the places of the rank that is waited for.
#include "cuda_ops_fixture.h"

namespace minisgl::cuda {
namespace {

// Runs no kernel; remembers the last one.
class LastKernelApi : public EmulatedCudaApi {
 public:
  using EmulatedCudaApi::EmulatedCudaApi;
  CudaError LaunchKernel(const void* kernel, const CudaLaunch&, void**) override {
    last = kernel;
    return kCudaSuccess;
  }
  const void* last = nullptr;
};

// The kernel of a sum, of columns or of a sum with a norm, of the first of two ranks.
enum class Operation { kSum, kColumns, kSumNorm };
const void* KernelOn(const std::vector<int>& devices, Operation operation) {
  std::vector<std::shared_ptr<LastKernelApi>> apis;
  CudaRanksConfig config;
  config.devices = devices;
  auto made = MakeCudaRanksOver(
      [&] {
        EmulatedCudaConfig emulated;
        emulated.devices.resize(2);
        apis.push_back(std::make_shared<LastKernelApi>(std::move(emulated)));
        return std::shared_ptr<CudaApi>(apis.back());
      },
      [](const MatmulSetup& setup) -> Result<std::unique_ptr<MatmulLibrary>> {
        auto* const api = static_cast<LastKernelApi*>(setup.api);
        return std::unique_ptr<MatmulLibrary>(new EmulatedMatmul(api));
      },
      config, {}, LoadNccl);
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return nullptr;
  DeviceOps* const ops = (*made)[0].get();
  ops->RunAlone(true);
  const auto memory = *ops->Allocate(4096);
  const AllReduceParams sum = {.x = {memory.get(), DType::kBF16}, .count = 64};
  const int64_t bounds[] = {0, 64, 64};
  if (operation == Operation::kColumns) {
    ops->GatherColumns({.x = static_cast<const float*>(memory.get()),
                        .out = nullptr,
                        .num_tokens = 1,
                        .width = 64,
                        .first = 0,
                        .out_stride = 64,
                        .bounds = bounds});
  } else if (operation == Operation::kSum) {
    ops->AllReduce(sum);
  } else {
    ops->AllReduceNorm({.sum = sum,
                        .norm = {.x = sum.x,
                                 .residual = static_cast<float*>(memory.get()) + 512,
                                 .weight = static_cast<const float*>(memory.get()) + 768,
                                 .out = sum.x,
                                 .num_tokens = 1,
                                 .width = 64,
                                 .eps = 1e-5f}});
  }
  EXPECT_TRUE(ops->status().ok()) << ops->status().message();
  return apis[0]->last;
}

TEST(RankReleaseTest, OnlyOnDistinctDevices) {
  for (const Operation operation : {Operation::kSum, Operation::kColumns, Operation::kSumNorm}) {
    SCOPED_TRACE(static_cast<int>(operation));
    const void* const shared = KernelOn({0, 0}, operation);
    const void* const distinct = KernelOn({0, 1}, operation);
    EXPECT_NE(shared, nullptr);
    EXPECT_NE(shared, distinct);
    EXPECT_EQ(shared, KernelOn({1, 1}, operation));
    EXPECT_EQ(distinct, KernelOn({1, 0}, operation));
  }
}

}  // namespace
}  // namespace minisgl::cuda
