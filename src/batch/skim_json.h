// Reads the short members of a JSON text in bounded memory, independent of its length: a row of an
// output may hold long answers, and a damaged file anything.
#pragma once

#include <cstddef>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

// Up to this length, a text is parsed as a whole by ParseJson().
inline constexpr size_t kWholeJsonBytes = size_t{64} << 10;
// In a longer text, strings up to this length are read,
inline constexpr size_t kSkimmedStringBytes = size_t{1} << 20;
// other members up to kWholeJsonBytes, and at most this many bytes of members in total.
inline constexpr size_t kSkimmedBytes = size_t{2} << 20;

// Returns the value of `text`. In a long text: skipped members are null, nested objects are read
// the same way, a text that is not an object gives null, and duplicate keys are not detected.
// Errors as for ParseJson().
Result<Json> SkimJson(std::string_view text);

}  // namespace minisgl::batch
