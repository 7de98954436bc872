#include "minisgl/base/log.h"

#include <mutex>

namespace minisgl {
namespace {

std::mutex g_mutex;
LogSink& Sink() {
  static LogSink sink;
  return sink;
}

ProgressSink& Progress() {
  static ProgressSink sink;
  return sink;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard lock(g_mutex);
  Sink() = std::move(sink);
}

void Log(LogLevel level, const std::string& line) {
  std::lock_guard lock(g_mutex);
  if (Sink()) Sink()(level, line);
}

void SetProgressSink(ProgressSink sink) {
  std::lock_guard lock(g_mutex);
  Progress() = std::move(sink);
}

void ReportProgress(std::string_view what, int64_t done, int64_t total) {
  std::lock_guard lock(g_mutex);
  if (Progress()) Progress()(what, done, total);
}

}  // namespace minisgl
