// The state of fake_cublas_lt.cc that tests read.
#pragma once

#include <cstdint>

struct FakeCublasLtSeen {
  int objects = 0;  // made and not destroyed
  int num_choices = 0;
  int num_checks = 0;
  uint64_t workspace_bytes = 0;  // of the last choice
  uint32_t reductions = 0;
  uint64_t algorithm = 0;  // of the last product
};

extern "C" const FakeCublasLtSeen* FakeCublasLt();
