// Bytes of standard input, waited for together with signals.
#pragma once

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
  kStopped,    // Ctrl-Z: the process is to stop
  kContinued,  // the process goes on after a stop that it could not see
};

// What the terminal's interrupt key sends; '\0' where it has none.
char InterruptByte();

// Used by one thread.
class ByteSource {
 public:
  // `signals` outlives this. An `interrupt` that is not '\0' is a byte that counts as SIGINT.
  explicit ByteSource(SignalWatch* signals, char interrupt = '\0')
      : signals_(signals), interrupt_(interrupt) {}

  ByteOutcome Next(char* byte, int timeout_ms = -1);
  // The next call gives `outcome` again: for one that came in the middle of a character or a key.
  void Hold(ByteOutcome outcome);
  void PutBack(std::string_view bytes);
  // The interrupt key, pressed ahead of its time: drops what was typed before it, as a terminal
  // does.
  bool TakeInterruptAhead();

 private:
  ByteOutcome Fill(int timeout_ms);

  SignalWatch* const signals_;
  const char interrupt_;
  std::string buffer_;
  size_t at_ = 0;
  ByteOutcome held_ = ByteOutcome::kByte;
};

}  // namespace minisgl::term
