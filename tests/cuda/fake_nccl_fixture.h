// NCCL's calls with the fake library of fake_nccl.cc.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fake_nccl.h"
#include "nccl_library.h"

namespace minisgl::cuda {

// The state of the fake library.
inline FakeNcclState* g_nccl_state = nullptr;

inline int64_t FakeNcclNow() {
  ++g_nccl_state->num_looks;
  return g_nccl_state->now_ms += g_nccl_state->look_ms;
}

// With the fake's clock.
inline Result<NcclLibrary> LoadFakeNccl() {
  auto library = LoadNcclOf({.names = {MINISGL_FAKE_NCCL}, .folders = "nowhere"});
  if (library.ok() && g_nccl_state != nullptr) library->now_ms = FakeNcclNow;
  return library;
}

class FakeNcclTest : public testing::Test {
 protected:
  FakeNcclTest() {
    void* const fake = dlopen(MINISGL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);  // stays loaded
    if (fake == nullptr) throw std::runtime_error(dlerror());
    g_nccl_state = nccl_ = reinterpret_cast<decltype(&FakeNccl)>(dlsym(fake, "FakeNccl"))();
    const FakeNcclState fresh;
    nccl_->enqueue = nullptr;
    nccl_->has_graphs = nullptr;
    nccl_->version = fresh.version;
    nccl_->version_error = nccl_->init_error = 0;
    nccl_->num_sums = nccl_->num_aborted = 0;
    nccl_->longest = 0;
    Heal();
  }
  ~FakeNcclTest() override { EXPECT_EQ(nccl_->num_comms, 0); }

  void Heal() {
    nccl_->faulty_rank = -1;
    nccl_->sum_error = nccl_->async_error = 0;
    nccl_->is_absent = false;
    nccl_->look_ms = 0;
  }

  FakeNcclState* nccl_ = nullptr;
};

}  // namespace minisgl::cuda
