// The exit statuses that are no error's (those are ExitCode of base/status.h).
#pragma once

namespace minisgl::term {

inline constexpr int kExitSomeFailed = 1;    // all was done, and some rows or turns have no answer
inline constexpr int kExitSignalBase = 128;  // and the signal's number, as shells have it
inline constexpr int kExitPipeClosed = 141;  // whoever read the answers left: SIGPIPE's

}  // namespace minisgl::term
