// The state of fake_cublas_lt.cc that tests read and set.
#pragma once

#include <cstdint>

struct FakeCublasLtSeen {
  int objects = 0;  // made and not destroyed
  int num_choices = 0;
  int num_checks = 0;
  uint64_t workspace_bytes = 0;  // of the last choice
  uint32_t reductions = 0;
  uint64_t algorithm = 0;  // of the last product
  bool capturing = false;  // set by a test: algorithms cannot be chosen
};

extern "C" FakeCublasLtSeen* FakeCublasLt();
