#include "failing_write.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace minisgl {
namespace {

FailingWrite::Plan g_plan;
std::atomic<bool> g_active{false};
std::atomic<int64_t> g_num_writes{0};

bool IsOfPlan(int fd) {
  struct stat of_fd {
  }, of_path{};
  return fstat(fd, &of_fd) == 0 && stat(g_plan.path, &of_path) == 0 &&
         of_fd.st_dev == of_path.st_dev && of_fd.st_ino == of_path.st_ino;
}

}  // namespace

FailingWrite::FailingWrite(const Plan& plan) {
  g_plan = plan;
  g_num_writes = 0;
  g_active = true;
}
FailingWrite::~FailingWrite() { g_active = false; }

}  // namespace minisgl

// Replaces the function of the C library.
extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  using namespace minisgl;
  if (!g_active || !IsOfPlan(fd)) return syscall(SYS_write, fd, bytes, size);
  const int64_t number = ++g_num_writes;
  const int64_t failing = g_plan.failing;
  // The failing call may write a part first; then the next call returns the error.
  if (number == failing && g_plan.bytes_before > 0) {
    return syscall(SYS_write, fd, bytes,
                   std::min<size_t>(size, static_cast<size_t>(g_plan.bytes_before)));
  }
  const bool fails =
      g_plan.transient ? number == failing + (g_plan.bytes_before > 0 ? 1 : 0) : number >= failing;
  if (!fails) return syscall(SYS_write, fd, bytes, size);
  errno = g_plan.error;
  return -1;
}
