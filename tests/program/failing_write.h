// Injects write errors: test programs define write(2), which counts the calls for one file.
#pragma once

#include <cstdint>

namespace minisgl {

// While an instance exists, write number `failing` (from 1) to a descriptor of `path` fails with
// `error`, after `bytes_before` of its bytes. All later ones fail too, unless `transient`.
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
