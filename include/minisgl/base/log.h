// Notes to the person at the terminal that no room may print itself: collected here, shown by
// src/cli. Thread-safe. Without a sink, notes are dropped.
#pragma once

#include <functional>
#include <string>

namespace minisgl {

enum class LogLevel { kVerbose, kInfo, kWarning };
using LogSink = std::function<void(LogLevel, const std::string& line)>;

// The sink is called under a lock, one line a call without its line break; it must not log.
void SetLogSink(LogSink sink);
void Log(LogLevel level, const std::string& line);

}  // namespace minisgl
