// Ends the program when memory runs out in a place that cannot return an error: one line on
// standard error and exit status 75. None of these functions allocates.
#pragma once

#include <new>

namespace minisgl {

// Writes that line to standard error.
void PrintOutOfMemory() noexcept;

// Writes the line and ends the program at once. Data already passed to the system for files is not
// lost.
[[noreturn]] void ExitOutOfMemory() noexcept;

// After this call, a std::bad_alloc that cannot be caught (thrown in a destructor, or out of a
// thread) ends the program by ExitOutOfMemory(). Other uncaught exceptions abort it as before. Call
// once.
void InstallOutOfMemoryHandler();

// During its lifetime, a failed allocation in any thread ends the program by ExitOutOfMemory()
// instead of throwing. For calls of libraries that do not survive std::bad_alloc. Destroy in
// reverse order of construction.
class ExitOnOutOfMemory {
 public:
  ExitOnOutOfMemory() : previous_(std::set_new_handler(&ExitOutOfMemory)) {}
  ~ExitOnOutOfMemory() { std::set_new_handler(previous_); }
  ExitOnOutOfMemory(const ExitOnOutOfMemory&) = delete;
  ExitOnOutOfMemory& operator=(const ExitOnOutOfMemory&) = delete;

 private:
  const std::new_handler previous_;
};

}  // namespace minisgl
