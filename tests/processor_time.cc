// Linked into every test program: each case's processor time, its own threads and the processes
// that it waited for, becomes its property `processor_ms` in the XML report. tests/count_results.py
// reads it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>

namespace minisgl {
namespace {

int64_t Milliseconds(const timeval& time) { return time.tv_sec * 1000 + time.tv_usec / 1000; }

int64_t ProcessorTime() {
  int64_t sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    sum += Milliseconds(used.ru_utime) + Milliseconds(used.ru_stime);
  }
  return sum;
}

class ProcessorTimeListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { start_ms_ = ProcessorTime(); }
  void OnTestEnd(const testing::TestInfo&) override {
    testing::Test::RecordProperty("processor_ms", std::to_string(ProcessorTime() - start_ms_));
  }
  int64_t start_ms_ = 0;
};

// gtest owns its listeners.
[[maybe_unused]] const bool kIsListening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ProcessorTimeListener);
  return true;
}();

}  // namespace
}  // namespace minisgl
