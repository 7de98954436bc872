// Log lines and progress of all rooms. The program sets one sink for each (src/term prints them);
// without a sink they are dropped. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace minisgl {

enum class LogLevel { kVerbose, kInfo, kWarning };
using LogSink = std::function<void(LogLevel, const std::string& line)>;

// Progress of work that may take seconds ("loading weights", 3 of 28). `done` == `total`: the work
// has ended, also if it failed.
using ProgressSink = std::function<void(std::string_view what, int64_t done, int64_t total)>;

// The sink is called under a lock, with one line without its line break. It must not call Log.
void SetLogSink(LogSink sink);
void Log(LogLevel level, const std::string& line);

// The same for progress, under the same lock.
void SetProgressSink(ProgressSink sink);
void ReportProgress(std::string_view what, int64_t done, int64_t total);

}  // namespace minisgl
