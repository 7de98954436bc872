// Environment variables, and the folders of a user that they name. Not to be called while another
// thread sets variables.
#pragma once

#include <string>

namespace minisgl {

// The value of variable `name`, or "" if it is not set.
std::string EnvironmentVariable(const char* name);

// A base directory of the XDG specification: the value of `variable` ("XDG_CACHE_HOME") if that is
// an absolute path, which the specification requires, or else `below_home` (".cache") in the home
// directory. "" if there is no home directory.
std::string UserFolder(const char* variable, const std::string& below_home);

}  // namespace minisgl
