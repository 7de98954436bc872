// The instruction set that a suite is run with: $MINISGL_CPU_TARGET, as for the program; "" is the
// best of this machine. tests/run.sh runs the suites whose results depend on it once more with
// AVX2, so that a fault of one kind of processor shows on another.
#pragma once

#include <cstdlib>
#include <string>

namespace minisgl {

inline std::string TestedCpuTarget() {
  const char* name = std::getenv("MINISGL_CPU_TARGET");
  return name == nullptr ? "" : name;
}

}  // namespace minisgl
