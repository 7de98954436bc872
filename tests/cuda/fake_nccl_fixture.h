// NCCL's calls with the fake library of fake_nccl.cc.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fake_nccl.h"
#include "nccl_library.h"

namespace minisgl::cuda {

inline Result<NcclLibrary> LoadFakeNccl() {
  return LoadNcclOf({.names = {MINISGL_FAKE_NCCL}, .folders = "nowhere"});
}

class FakeNcclTest : public testing::Test {
 protected:
  FakeNcclTest() {
    void* const fake = dlopen(MINISGL_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);  // stays loaded
    if (fake == nullptr) throw std::runtime_error(dlerror());
    nccl_ = reinterpret_cast<decltype(&FakeNccl)>(dlsym(fake, "FakeNccl"))();
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
  }

  FakeNcclState* nccl_ = nullptr;
};

}  // namespace minisgl::cuda
