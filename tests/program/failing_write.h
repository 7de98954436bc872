// Writes that fail when a test says so: the program of the tests has its own write(2), which counts
// the calls to one file.
#pragma once

#include <cstdint>

namespace minisgl {

// While one lives, write number `failing` (from 1) to a descriptor of `path` fails with `error`,
// after `bytes_before` of its bytes; and every later one, unless it is `transient`.
class FailingWrite {
 public:
  struct Plan {
    const char* path = "";
    int64_t failing = 0;
    int error = 0;
    int64_t bytes_before = 0;
    bool transient = false;
  };
  explicit FailingWrite(const Plan& plan);
  ~FailingWrite();
  FailingWrite(const FailingWrite&) = delete;
  FailingWrite& operator=(const FailingWrite&) = delete;
};

}  // namespace minisgl
