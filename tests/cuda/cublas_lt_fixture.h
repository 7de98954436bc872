// cuBLASLt's calls with the fake library of fake_cublas_lt.cc.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cublas_lt.h"
#include "fake_cublas_lt.h"

namespace minisgl::cuda {

inline const LibraryNames kFake = {.names = {"libno-such-library.so.1", MINISGL_FAKE_CUBLAS_LT},
                                   .folders = ""};
inline constexpr size_t kWorkspaceBytes = 1 << 20;

class CublasLtTest : public ::testing::Test {
 protected:
  // The workspace is the fixture's.
  void Open(MatmulSetup setup = {}, std::unique_ptr<WorkTimer> timer = nullptr) {
    library_ = nullptr;
    setup.workspace = workspace_;
    setup.workspace_bytes = kWorkspaceBytes;
    auto made = LoadCublasLtOf(kFake, setup, std::move(timer));
    ASSERT_TRUE(made.ok()) << made.status().message();
    library_ = std::move(made).value();
    void* const fake = dlopen(MINISGL_FAKE_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(fake, nullptr);
    const auto seen = reinterpret_cast<decltype(&FakeCublasLt)>(dlsym(fake, "FakeCublasLt"));
    dlclose(fake);  // the library keeps it loaded
    ASSERT_NE(seen, nullptr);
    seen_ = seen();
    num_choices_before_ = seen_->num_choices;
  }
  void TearDown() override {
    library_ = nullptr;
    if (seen_ == nullptr) return;
    EXPECT_EQ(seen_->objects, 0);
    *seen_ = {};
  }

  int num_choices() const { return seen_->num_choices - num_choices_before_; }
  Status Multiply(const MatmulShape& shape) {
    std::vector<uint16_t> x(static_cast<size_t>(shape.num_tokens * shape.num_in));
    std::vector<uint16_t> weight(static_cast<size_t>(shape.num_out * shape.num_in));
    std::vector<float> out(static_cast<size_t>(shape.num_tokens * shape.num_out));
    return library_->Matmul(shape, x.data(), weight.data(), out.data(), nullptr);
  }

  alignas(16) char workspace_[16] = {};  // the fake does not use it
  std::unique_ptr<MatmulLibrary> library_;
  FakeCublasLtSeen* seen_ = nullptr;
  int num_choices_before_ = 0;
};

}  // namespace minisgl::cuda
