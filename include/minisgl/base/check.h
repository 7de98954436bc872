// Checks of conditions that only a bug in the program can break. A failed check prints one line
// with its place to stderr and aborts. No input of a user or a file may make one fail.
#pragma once

#include <fmt/core.h>

#include <string>

namespace minisgl {

// Called by a failed check before it aborts; a test's handler throws instead of returning. Null:
// none. Set it before any thread starts.
using CheckHandler = void (*)(const std::string& message);
void SetCheckHandler(CheckHandler handler);

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

#ifdef NDEBUG
inline constexpr bool kDebugBuild = false;
#else
inline constexpr bool kDebugBuild = true;
#endif

}  // namespace minisgl

// MINISGL_CHECK(condition, "format {}", args...): always on.
#define MINISGL_CHECK(condition, ...)                                                     \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::minisgl::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// MINISGL_CHECK in debug builds only, for checks that cost time on a hot path.
#define MINISGL_DCHECK(condition, ...)                                           \
  do {                                                                           \
    if constexpr (::minisgl::kDebugBuild) MINISGL_CHECK(condition, __VA_ARGS__); \
  } while (false)
