// main of the suite `gpu`: gtest's, except in a process that a test starts to break its device.
#include <gtest/gtest.h>

#include <string_view>

#include "gpu/fault_process.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == minisgl::cuda::kFaultOption) {
    return minisgl::cuda::RunFaultProcess(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
