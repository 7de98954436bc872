// What a folder holds.
//
// In place of std::filesystem::directory_iterator, whose increment takes memory and is noexcept:
// where there is none it ends the program, with no word of why. Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

// Whether `path` is there, a symbolic link that leads nowhere included: opening it says so.
bool IsListed(const std::string& path);

// kNoInput where `path` is a symbolic link that leads nowhere, as a download or a copy that is not
// whole leaves them.
Status CheckLink(const std::string& path);

// Names in `folder` without "." and "..", sorted; none where it cannot be read. Throws
// std::bad_alloc.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace minisgl
