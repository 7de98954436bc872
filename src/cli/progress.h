// How far a run is, on standard error: one line rewritten on a terminal, a plain line every ten
// seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

// "loading weights [=====     ] 14/28", the bar `columns` wide. REQUIRES 0 <= done <= total.
std::string ProgressBar(std::string_view what, int64_t done, int64_t total, int columns);

// Shows what base/log.h's SayProgress says as a bar on the terminal, once it has gone on for a
// moment.
void InstallProgressBar();

}  // namespace minisgl
