// Functions of a library that is loaded at run time.
#pragma once

#include <dlfcn.h>

namespace minisgl {

// Sets `*function`, a pointer to a function, to the function `name` of `library`, a handle from
// dlopen. Returns false if the library has no such function.
template <typename Function>
bool FindFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace minisgl
