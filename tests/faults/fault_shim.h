// Faults on request, for the whole program that links fault_shim.cc: memory that runs out and files
// that cannot be read.
//
// The shim stands in place of operator new, aligned_alloc and the calls that open, look at, map and
// read files. Until it is told otherwise it passes everything on. Calls are counted from Arm() on,
// over all threads, so that the same work meets the same fault at (nearly) the same place.
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
  // From then on all of them do. Of memory: as where a limit is reached: what is given back can be
  // had again.
  bool persistent = false;
  // What the call says (errno); 0, for kRead: it gives one byte where more was asked for. Memory
  // has no say.
  int error = 0;
};

// Counts begin at zero, and `fault` strikes once it is its turn. One thread is to run.
void Arm(const Fault& fault);
// Nothing fails from here on.
void Disarm();

// Since Arm().
int64_t NumCalls(Call call);
// Whether a call has failed.
bool HasStruck();
// What was opened and is no file of the system (/proc, /sys, /etc, /usr, /lib, /dev), in order.
std::vector<std::string> OpenedPaths();

// Most bytes that operator new and aligned_alloc had given out at one time since Arm(), beyond what
// was out then.
int64_t PeakBytes();
// Bytes of operator new that are out now: since the last Arm(), or since the program began.
int64_t BytesOut();

}  // namespace minisgl::faults
