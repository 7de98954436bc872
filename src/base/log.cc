#include "minisgl/base/log.h"

#include <mutex>

namespace minisgl {
namespace {

std::mutex g_mutex;
LogSink& Sink() {
  static LogSink sink;
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

}  // namespace minisgl
