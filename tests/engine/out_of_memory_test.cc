// The engine without any memory left: reporting the failure of a step allocates nothing.
//
// Replaces the program's operator new by one that a test can make fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "engine/engine_driver.h"
#include "engine/forwarding_ops.h"

namespace {

std::atomic<bool> g_refuse = false;
thread_local bool t_may_refuse = false;

}  // namespace

// Not inlined: the compiler would warn that malloc and delete do not match.
[[gnu::noinline]] void* operator new(size_t num_bytes) {
  void* const memory =
      t_may_refuse && g_refuse ? nullptr : std::malloc(num_bytes > 0 ? num_bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// The address sanitizer has its own, which does not match the delete below.
[[gnu::noinline]] void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  return t_may_refuse && g_refuse ? nullptr : std::malloc(num_bytes > 0 ? num_bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace minisgl {
namespace {

// In the first step, makes every later allocation of this thread fail and raises a fault.
class StarvedOps final : public ForwardingOps {
 public:
  explicit StarvedOps(void (*fault)()) : fault_(fault) {}
  void Activate(const ActivateParams& params) override {
    if (fault_ == nullptr) return ForwardingOps::Activate(params);
    void (*const fault)() = fault_;
    fault_ = nullptr;
    t_may_refuse = g_refuse = true;
    fault();
  }

 private:
  void (*fault_)();
};

TEST(OutOfMemoryTest, AFailedStepIsReportedWithoutMemoryAndTheNextRuns) {
  void (*const faults[])() = {[] { throw std::bad_alloc(); }, [] { throw 42; },
                              [] { std::vector<int> more(1000); }};
  const auto model = MakeTinyModel();
  for (const auto fault : faults) {
    EngineDriver driver(model->config, *model->checkpoint, {}, std::make_unique<StarvedOps>(fault));
    driver.ExtendAll(driver.AddRow({1, 2, 3}));
    const Status status = driver.Step();
    g_refuse = false;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_NE(status.message().find("step 1 ran out of memory"), std::string::npos)
        << status.message();
    EXPECT_EQ(driver.Generate(driver.AddRow({4, 5}), 8, 3).size(), 3u);
  }
}

}  // namespace
}  // namespace minisgl
