// Functions of a library that is loaded at run time.
#pragma once

#include <dlfcn.h>

namespace minisgl {

// Sets `*function`, a pointer to a function, to the one of that name in `library`, which dlopen
// gave; false if the library has none.
template <typename Function>
bool FindFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace minisgl
