// The two forms of a test. The short form, which every run of the tests has, does as little as
// finds the fault that a case is for; the long form (`run.sh --long`, $MINISGL_LONG) leaves nothing
// out.
#pragma once

#include <cstdlib>

namespace minisgl {

inline bool IsLongForm() {
  const char* const wanted = std::getenv("MINISGL_LONG");
  return wanted != nullptr && *wanted != '\0';
}

// How often, or how large.
template <typename Count>
Count ShortOrLong(Count in_short_form, Count in_long_form) {
  return IsLongForm() ? in_long_form : in_short_form;
}

}  // namespace minisgl
