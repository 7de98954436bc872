// How far a run is, on standard error: one line rewritten on a terminal, a plain line every ten
// seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace minisgl {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Numbers {
    int64_t done = 0;
    int64_t failed = 0;
    std::optional<int64_t> total;  // unset for a pipe
    int64_t tokens = 0;            // of answers
  };

  // Says nothing where not `enabled`.
  Progress(bool enabled, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `numbers` if it is time; cheap otherwise.
  void Update(const Numbers& numbers);
  // Takes the line away.
  void Finish();

 private:
  const bool enabled_;
  const bool terminal_;
  const Clock::time_point begin_;
  Clock::time_point next_;
};

}  // namespace minisgl
