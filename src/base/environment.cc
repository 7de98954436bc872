// See environment.h.
#include "minisgl/base/environment.h"

#include <cstdlib>

namespace minisgl {

std::string EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string UserFolder(const char* variable, const std::string& below_home) {
  const std::string folder = EnvironmentVariable(variable);
  if (folder.starts_with('/')) return folder;
  const std::string home = EnvironmentVariable("HOME");
  return home.empty() ? "" : home + "/" + below_home;
}

}  // namespace minisgl
