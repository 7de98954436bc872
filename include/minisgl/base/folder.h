// Listing folders.
//
// Replaces std::filesystem::directory_iterator, whose noexcept increment allocates: out of memory,
// it terminates the program without a message. Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

// True if `path` exists. A dangling symbolic link counts: opening it gives the error.
bool IsListed(const std::string& path);

// kNoInput if `path` is a dangling symbolic link, which an incomplete download or copy leaves.
Status CheckLink(const std::string& path);

// Names in `folder` without "." and "..", sorted; empty if it cannot be read. Throws
// std::bad_alloc.
std::vector<std::string> NamesIn(const std::string& folder);
// The same for an open folder.
std::vector<std::string> NamesIn(int folder);

}  // namespace minisgl
