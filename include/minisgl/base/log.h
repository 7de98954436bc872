// Notes to the person at the terminal that no room may print itself: collected here, shown by
// src/cli. Thread-safe. Without a sink, notes are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace minisgl {

enum class LogLevel { kVerbose, kInfo, kWarning };
using LogSink = std::function<void(LogLevel, const std::string& line)>;

// How far work that may take seconds has come ("loading weights", 3 of 28). `done` == `total`: it
// is over, in whatever way.
using ProgressSink = std::function<void(std::string_view what, int64_t done, int64_t total)>;

// The sink is called under a lock, one line a call without its line break; it must not log.
void SetLogSink(LogSink sink);
void Log(LogLevel level, const std::string& line);

// As the above, under the same lock.
void SetProgressSink(ProgressSink sink);
void SayProgress(std::string_view what, int64_t done, int64_t total);

}  // namespace minisgl
