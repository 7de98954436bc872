// Attention begins to read keys before the kernel in front of it has ended: only behind the kernel
// that writes the newest keys, which waits for everything before it.
#include <functional>

#include "cuda_ops_fixture.h"
#include "kernels/attention_arguments.h"

namespace minisgl::cuda {
namespace {

// Runs no kernel; looks at the arguments of attention's.
class ArgumentsApi : public EmulatedCudaApi {
 public:
  CudaError LaunchKernel(const void*, const CudaLaunch&, void** arguments) override {
    if (!is_attention) return kCudaSuccess;
    early = static_cast<const AttentionArguments<device::bf16>*>(arguments[0])->early;
    is_attention = false;
    return kCudaSuccess;
  }
  bool is_attention = false;  // the next kernel is
  bool early = false;
};

class EarlyAttentionTest : public QueuedOpsFixture {
 protected:
  EarlyAttentionTest() {
    arguments_ = std::make_shared<ArgumentsApi>();
    api_ = arguments_;
    OpenReserved({});
  }

  void Rope() {
    ops_->RopeKvWrite({.qkv = {At(0), DType::kBF16},
                       .positions = reinterpret_cast<const int32_t*>(At(8192)),
                       .slots = reinterpret_cast<const int64_t*>(At(8256)),
                       .cos = nullptr,
                       .sin = nullptr,
                       .kv = Keys(),
                       .num_tokens = 2,
                       .num_heads = 2,
                       .num_kv_heads = 1,
                       .head_dim = 64,
                       .rotary_dim = 0});
  }
  // Whether attention behind `between`, which follows the write of keys, begins early.
  bool IsEarlyBehind(const std::function<void()>& between) {
    Rope();
    between();
    AttentionParams params = {};
    params.qkv = {At(0), DType::kBF16};
    params.out = {At(2048), DType::kBF16};
    params.kv = Keys();
    params.num_rows = params.num_decode_rows = params.num_tokens = 2;
    params.num_heads = 2;
    params.num_kv_heads = 1;
    params.head_dim = 64;
    params.scale = 1;
    arguments_->is_attention = true;
    ops_->Attention(params);
    EXPECT_TRUE(ops_->status().ok()) << ops_->status().message();
    EXPECT_FALSE(arguments_->is_attention) << "not launched";
    return arguments_->early;
  }
  KvLayer Keys() {
    KvLayer keys = {};
    keys.base = {At(0), DType::kBF16};
    keys.page_size = 16;
    return keys;
  }

  std::shared_ptr<ArgumentsApi> arguments_;
};

TEST_F(EarlyAttentionTest, OnlyBehindTheWriteOfKeys) {
  EXPECT_TRUE(IsEarlyBehind([] {}));
  EXPECT_FALSE(IsEarlyBehind([&] { Gather(); }));
  EXPECT_FALSE(IsEarlyBehind([&] { Multiply(1); }));
  EXPECT_FALSE(IsEarlyBehind([&] { Multiply(kLibraryTokens); })) << "a product of the library";
  EXPECT_FALSE(IsEarlyBehind([&] { ops_->CopyOnDevice(At(0), At(64), 64); })) << "a copy";
}

}  // namespace
}  // namespace minisgl::cuda
