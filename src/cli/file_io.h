// Writing, the same way wherever the program writes: all of a text to a descriptor, or a file that
// is replaced as a whole.
//
// A write that a signal interrupts goes on, and one to a full pipe that would not wait is waited
// for. Thread-safe (no state).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

// Writes all of `text`; false where that fails, with errno. `*written` (may be null): the bytes
// that were.
bool WriteAll(int fd, std::string_view text, size_t* written = nullptr);

// Puts `text` into the regular file `path` so that a reader finds the old file or the new one, also
// after a power cut. A symbolic link stays and the file that it names is replaced; a file keeps its
// permissions, a new one gets `mode` less the umask. kCannotCreate, kIoError.
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode);

}  // namespace minisgl
