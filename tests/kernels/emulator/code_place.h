// Where code is in its source, for messages.
#pragma once

#include <string>

namespace minisgl::cuda::emulator {

// "function at file:line" of the code that returns to `code`, a place in this executable; the
// function is the outermost that was inlined there, the line the innermost's. Empty if the tool
// addr2line or the line numbers are missing. Slow the first time for each place.
std::string CodePlace(const void* code);

}  // namespace minisgl::cuda::emulator
