// What a file is by its first bytes, for the message about one that is not what it should be: what
// interrupted downloads leave, archives, formats of other programs. Thread-safe (no state).
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

// Of a file that begins with `begin`; none where these bytes tell nothing, or there are none. Some
// formats begin alike: ask once a file has failed to be what it should be.
std::optional<FileKind> KindOfFile(std::string_view begin);

// `status` of reading the file with `bytes`, or, where that failed and the file is of another kind,
// the error that says of which. `file` names it in messages.
Status OrFileKind(Status status, std::string_view bytes, const std::string& file);

}  // namespace minisgl
