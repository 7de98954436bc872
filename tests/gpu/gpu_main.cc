// main of the suite `gpu`: gtest's, but for a process that a test starts to break its own device.
#include <gtest/gtest.h>

#include <string_view>

#include "gpu/fault_process.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == minisgl::kFaultOption) {
    return minisgl::RunFaultProcess(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
