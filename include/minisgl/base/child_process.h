// Runs another program to its end: text on its standard input, bounded output, a time limit.
//
// There is no shell: the words are the program and its arguments as they are. The program runs in
// the folder and the environment of this process, with its signals as they are by default, in a
// process group of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

struct ChildLimits {
  std::chrono::milliseconds time{30'000};
  size_t output_max = size_t{64} << 10;  // bytes of standard output that are kept
  size_t errors_max = size_t{4} << 10;   // and of standard error
};

struct ChildResult {
  enum class End : uint8_t {
    kExited,      // `code`: its exit status
    kSignalled,   // `code`: the number of the signal that ended it
    kTimedOut,    // killed after ChildLimits::time
    kStopped,     // killed because the caller asked for it
    kNotStarted,  // `code`: the errno, ENOENT if there is no such program
  };
  End end = End::kExited;
  int code = 0;
  std::string output, errors;  // the first bytes of both streams
  bool output_cut = false;     // there was more
};

// Runs `words` with `input` on its standard input and waits for its end. `stops` (may be empty) is
// asked many times a second, and true kills the program. What the program has started in its
// process group, and has not ended, is killed with it. Does not fail if the program does not read
// its input, also if SIGPIPE is not ignored. Output above an upper bound is read and dropped.
// REQUIRES !words.empty(). Thread-safe.
ChildResult RunChild(const std::vector<std::string>& words, std::string_view input,
                     const ChildLimits& limits, const std::function<bool()>& stops = {});

}  // namespace minisgl
