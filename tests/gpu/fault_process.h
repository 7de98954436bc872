// A process that breaks its device on purpose. CUDA does not work in it afterwards, so it cannot be
// the process of the tests.
#pragma once

#include <string>

namespace minisgl::cuda {

// TEST_PROGRAM --break-the-device FAULT
inline constexpr char kFaultOption[] = "--break-the-device";

// Exit codes of that process.
inline constexpr int kFaultReported = 70;  // as the program's own: the fault was reported correctly
inline constexpr int kFaultNotReported = 1;
inline constexpr int kFaultTooLate = 2;

int RunFaultProcess(const std::string& fault);

}  // namespace minisgl::cuda
