// Lower case, letter by letter, as the normalizers of tokenizers have it. Pure and thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace minisgl {

// `text` in lower case. Ill-formed UTF-8 becomes U+FFFD, one for each maximal ill-formed run.
std::string LowerCase(std::string_view text);

}  // namespace minisgl
