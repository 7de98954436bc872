// A process whose device is broken on purpose: nothing of CUDA works in it afterwards, so a test
// cannot do that to its own.
#pragma once

#include <string>

namespace minisgl {

// TEST_PROGRAM --break-the-device FAULT
inline constexpr char kFaultOption[] = "--break-the-device";

// Exit codes of that process.
inline constexpr int kFaultReported = 70;  // as the program's own: the fault was told as it should
inline constexpr int kFaultNotReported = 1;
inline constexpr int kFaultTooLate = 2;

int RunFaultProcess(const std::string& fault);

}  // namespace minisgl
