// Recognises a file's kind by its first bytes, for error messages about unexpected files: leftovers
// of interrupted downloads, archives, formats of other programs. Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

struct FileKind {
  const char* name;    // "a git-lfs pointer": after "is" or "looks like"
  const char* advice;  // "run git lfs pull"
};

// The kind of a file that begins with `begin`; nullopt if it is unknown or `begin` is empty. Some
// formats share their first bytes, so ask only after the expected format has failed to parse.
std::optional<FileKind> KindOfFile(std::string_view begin);

// Returns `status`, the result of parsing `bytes`, or, if it is an error and the bytes are of a
// known other kind, an error that names the kind. `file` is the file's name in messages.
Status OrFileKind(Status status, std::string_view bytes, const std::string& file);

}  // namespace minisgl
