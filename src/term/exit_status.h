// Exit statuses that are not errors (those are ExitCode in base/status.h).
#pragma once

namespace minisgl::term {

inline constexpr int kExitSomeFailed = 1;    // finished, but some rows or turns have no answer
inline constexpr int kExitSignalBase = 128;  // plus the signal's number, as in shells
inline constexpr int kExitPipeClosed = 141;  // the reader of the answers closed its pipe (SIGPIPE)

}  // namespace minisgl::term
