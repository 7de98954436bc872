// The state of fake_cublas_lt.cc that tests read and set.
#pragma once

#include <cstdint>

struct FakeCublasLtSeen {
  int objects = 0;  // made and not destroyed
  int num_choices = 0;
  int num_checks = 0;
  uint64_t workspace_bytes = 0;  // of the last choice
  uint32_t reductions = 0;
  int num_asked = 0;       // algorithms asked for in the last choice
  uint64_t algorithm = 0;  // of the last product
  uint64_t candidate = 0;  // its place among those that the choice returned
  int num_scaled = 0;      // products of e4m3
  // Set by a test:
  int num_candidates = 1;      // of a choice, if as many are asked for
  int failing_candidate = -1;  // no product works with it
  int refused_candidate = -1;  // it does not pass the check
  uint64_t needed_bytes = 0;   // of workspace, by every algorithm, says the check
  uint64_t version = 130'000;
  int compute_capability = 90;
  bool capturing = false;  // algorithms cannot be chosen
};

extern "C" FakeCublasLtSeen* FakeCublasLt();
