// Reads bytes from standard input while waiting for signals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "term/terminal.h"

namespace minisgl::term {

enum class ByteOutcome {
  kByte,
  kInterrupted,
  kTerminated,
  kEnd,
  kTimeout,
  kResized,
  kStopped,    // Ctrl-Z: the process should stop
  kContinued,  // the process continued after a stop that it could not see (SIGSTOP)
};

// Character of the terminal's interrupt key; '\0' if it has none.
char InterruptByte();

// Used by one thread.
class ByteSource {
 public:
  // `signals` must outlive this. If `interrupt` is not '\0', that byte counts as SIGINT.
  explicit ByteSource(SignalWatch* signals, char interrupt = '\0')
      : signals_(signals), interrupt_(interrupt) {}

  ByteOutcome Next(char* byte, int timeout_ms = -1);
  // Makes the next call return `outcome` again; used if it came in the middle of a character or a
  // key.
  void Hold(ByteOutcome outcome);
  void PutBack(std::string_view bytes);
  // If the interrupt key is in the input read so far, drops the input before it, as a terminal
  // does, and returns true.
  bool TakeInterruptAhead();
  // Drops the input read so far, and returns the number of lines in it.
  size_t DropAhead();

 private:
  ByteOutcome Fill(int timeout_ms);

  SignalWatch* const signals_;
  const char interrupt_;
  std::string buffer_;
  size_t at_ = 0;
  ByteOutcome held_ = ByteOutcome::kByte;
};

}  // namespace minisgl::term
