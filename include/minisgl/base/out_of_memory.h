// Memory that has run out where nothing can be unwound or told: the program says so in one line and
// ends with its exit status, 75. None of this takes memory.
#pragma once

#include <new>

namespace minisgl {

// Writes the line to standard error.
void SayOutOfMemory() noexcept;

// Says it and ends the program at once. What was written to files by then is in them.
[[noreturn]] void ExitOutOfMemory() noexcept;

// From here on std::bad_alloc that nobody can catch (thrown in a destructor, or out of a thread)
// ends the program by ExitOutOfMemory(); anything else that is not caught aborts it as before. Call
// once.
void InstallOutOfMemoryHandler();

// While one lives, an allocation that fails in any thread ends the program by ExitOutOfMemory() in
// place of throwing: around calls of a library that does not survive an exception of its own
// allocations. Only the innermost may be destroyed.
class ExitsWhereMemoryRunsOut {
 public:
  ExitsWhereMemoryRunsOut() : previous_(std::set_new_handler(&ExitOutOfMemory)) {}
  ~ExitsWhereMemoryRunsOut() { std::set_new_handler(previous_); }
  ExitsWhereMemoryRunsOut(const ExitsWhereMemoryRunsOut&) = delete;
  ExitsWhereMemoryRunsOut& operator=(const ExitsWhereMemoryRunsOut&) = delete;

 private:
  const std::new_handler previous_;
};

}  // namespace minisgl
