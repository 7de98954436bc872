// What a folder holds.
//
// In place of std::filesystem::directory_iterator, whose increment takes memory and is noexcept:
// where there is none it ends the program, with no word of why. Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

namespace minisgl {

// Names in `folder` without "." and "..", sorted; none where it cannot be read. Throws
// std::bad_alloc.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace minisgl
