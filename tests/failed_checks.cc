// Linked into every test program: a failed MINISGL_CHECK is a failure of the case that runs, and
// the cases after it run, too. On another thread than the case's, in a child process, and in a
// death test it ends the process, as in the program itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

std::thread::id g_thread;
pid_t g_process = 0;

// Returns where an exception would reach no case: the caller then reports the place and aborts.
void FailCase(const std::string& message) {
  if (std::this_thread::get_id() != g_thread || getpid() != g_process) return;
  if (testing::internal::InDeathTestChild() || std::uncaught_exceptions() > 0) return;
  ADD_FAILURE() << "failed check: " << message;  // also if something catches the exception
  throw std::logic_error("failed check: " + message);
}

// Set anew for each case: some cases have a handler of their own.
class FailedCheckListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    g_thread = std::this_thread::get_id();
    g_process = getpid();
    SetCheckHandler(FailCase);
  }
};

// gtest owns its listeners.
[[maybe_unused]] const bool kIsHandling = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new FailedCheckListener);
  return true;
}();

}  // namespace
}  // namespace minisgl
