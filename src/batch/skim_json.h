// Reads a JSON text of which only short members are wanted, in memory that does not depend on its
// length: rows of an output may hold long answers, and a damaged one anything.
#pragma once

#include <cstddef>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

// A text up to this length is read whole, as ParseJson() reads it.
inline constexpr size_t kWholeJsonBytes = size_t{64} << 10;
// Of a longer one a string up to this length is read,
inline constexpr size_t kSkimmedStringBytes = size_t{1} << 20;
// other members up to kWholeJsonBytes, and so many bytes of members in all.
inline constexpr size_t kSkimmedBytes = size_t{2} << 20;

// The value of `text`. In a long text a member that is not read is null, but an object is read in
// the same way; a text that is no object is null. (There a key that comes twice is not seen.)
// Errors as ParseJson()'s.
Result<Json> SkimJson(std::string_view text);

}  // namespace minisgl::batch
