#include "minisgl/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

CheckHandler g_handler = nullptr;

}  // namespace

void SetCheckHandler(CheckHandler handler) { g_handler = handler; }

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  if (g_handler != nullptr) g_handler(message);
  std::fprintf(stderr, "minisgl: bug: %s:%d: %s (%s)\n", file, line, Visible(message, 4000).c_str(),
               condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace minisgl
