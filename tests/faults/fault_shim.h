// Injects faults into a program that links fault_shim.cc: memory that runs out, and files that
// cannot be read.
//
// The shim replaces operator new, aligned_alloc and the calls that open, examine, map and read
// files. Without a fault it forwards every call. Calls are counted from Arm() on, over all threads,
// so that the same work meets the same fault at (nearly) the same place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minisgl::faults {

enum class Call { kAllocate, kOpen, kFstat, kMap, kRead };
inline constexpr int kNumCalls = 5;

struct Fault {
  Call call = Call::kAllocate;
  int64_t number = 0;  // which call fails, from 1; 0: none
  // All later calls fail too. For memory this acts like a limit: freed bytes can be allocated
  // again.
  bool persistent = false;
  // The error of the call (errno). For kRead 0 means that it returns one byte of those requested.
  // Unused for memory.
  int error = 0;
};

// Resets the counts and sets the fault. REQUIRES that no other thread runs.
void Arm(const Fault& fault);
// No later call fails.
void Disarm();

// Since Arm().
int64_t NumCalls(Call call);
// True if a call has failed.
bool HasStruck();
// The files opened, in order, except the system's (/proc, /sys, /etc, /usr, /lib, /dev).
std::vector<std::string> OpenedPaths();

// Peak number of bytes allocated by operator new and aligned_alloc since Arm(), beyond those in use
// at Arm().
int64_t PeakBytes();
// Bytes of operator new in use, allocated since the last Arm() or since the program began.
int64_t BytesOut();

}  // namespace minisgl::faults
