// Processor time, for cases whose subject is how long something takes: other processes delay the
// clock on the wall, and not this one.
#pragma once

#include <time.h>

namespace minisgl {

// Processor time of the calling thread, in seconds.
inline double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace minisgl
