// See memory.h.
#include "cpu/memory.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

constexpr size_t kAlignment = 64;
// Blocks of at least this size are mapped. For smaller ones, rounding to pages and the system calls
// would cost more than clearing.
constexpr size_t kMappedBytesMin = size_t{1} << 20;
// The large page of x86-64. Weights are read from end to end for each token: 2 threads stream 1 GiB
// 8 to 17 % faster from large pages than from small ones (Xeon, AVX-512), and touching it for the
// first time takes a third of the time.
constexpr size_t kHugeBytes = size_t{2} << 20;
// A virtual machine may have returned free memory to its host, large blocks first. A large page
// then takes 2.5 to 6 ms instead of 0.1 to 0.3, and small pages take as long, unless some are left
// that were not returned, which take 0.7 ms for 2 MiB.
constexpr int64_t kHugeSlowNs = 1'500'000;

// Pages of a shared block are taken at least so many bytes at once, so that all threads have some,
// and few enough that they are in the caches as they are written.
constexpr size_t kReadyBytes = 4 * kHugeBytes;

// MADV_POPULATE_WRITE of Linux 5.14. An older kernel gives each page when it is first written.
constexpr int kPopulateWrite = 23;

int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Touches the page at `at`, and returns how long that took.
int64_t TouchNs(std::byte* at) {
  const int64_t start = ThreadCpuNs();
  *reinterpret_cast<volatile std::byte*>(at) = std::byte{0};
  return ThreadCpuNs() - start;
}

// Requests large pages for `size` bytes at `begin`, which are touched as they are needed. After a
// first page was slow it requests no more: a step would wait for each.
void AskForLargePages(std::byte* begin, size_t size) {
  static std::atomic<bool> are_slow{false};
  if (are_slow.load(std::memory_order_relaxed)) return;
  if (madvise(begin, size, MADV_HUGEPAGE) != 0 || TouchNs(begin) < kHugeSlowNs) return;
  are_slow.store(true, std::memory_order_relaxed);
  madvise(begin, size, MADV_NOHUGEPAGE);
}

// Takes memory ahead, 2 MiB at a time: a large page, or small ones while the system gives these
// sooner. After a slow large page small ones are tried, and if they are quick, taken for a while.
// Any thread.
class PageTaker {
 public:
  // REQUIRES that `at` is a multiple of kHugeBytes in a block for which large pages were requested
  void Take(std::byte* at) {
    const int64_t slow_ns = slow_ns_.exchange(0, std::memory_order_relaxed);
    const bool is_small = num_small_.load(std::memory_order_relaxed) > 0;
    if (slow_ns == 0 && !is_small) {
      const int64_t ns = TouchNs(at);
      if (ns >= kHugeSlowNs) slow_ns_.store(ns, std::memory_order_relaxed);
      return;
    }
    const int64_t start = ThreadCpuNs();
    madvise(at, kHugeBytes, MADV_NOHUGEPAGE);
    const bool are_taken = madvise(at, kHugeBytes, kPopulateWrite) == 0;
    const bool are_quick = are_taken && 2 * (ThreadCpuNs() - start) < slow_ns;
    // Neighbours of other advice are mappings of their own, of which a process has at most 65530.
    madvise(at, kHugeBytes, MADV_HUGEPAGE);
    if (slow_ns == 0) {
      num_small_.fetch_sub(1, std::memory_order_relaxed);
    } else if (are_quick) {
      num_small_.store(kSmallRun, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int kSmallRun = 64;
  std::atomic<int64_t> slow_ns_{0};  // of a large page after which small ones are tried
  std::atomic<int> num_small_{0};    // to take in small pages before the next large one
};

// Maps `num_bytes`; null if there is not enough memory. Blocks of a large page or more are aligned
// to one, and `advise(begin, size)` is called with them.
template <typename Advise>
std::shared_ptr<void> Map(size_t num_bytes, const Advise& advise) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (num_bytes + page - 1) / page * page;
  const size_t slack = size >= kHugeBytes ? kHugeBytes - page : 0;
  void* const mapped =
      mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  if (slack > 0) {
    const size_t before = -reinterpret_cast<uintptr_t>(mapped) % kHugeBytes;
    if (before > 0) munmap(begin, before);
    begin += before;
    if (slack > before) munmap(begin + size, slack - before);
    advise(begin, size);
  }
  return std::shared_ptr<void>(begin, [size](void* block) { munmap(block, size); });
}

// The threads of `pool` take the pages of 2 MiB that begin in bytes [begin, end) of a block, whole.
// The end of the block, if it is less than such a page, has small pages, which come as they are
// written.
void TakePages(std::byte* block, size_t size, size_t begin, size_t end, ThreadPool* pool) {
  const size_t first = CeilDiv(begin, kHugeBytes);
  const size_t last = std::min(CeilDiv(end, kHugeBytes), size / kHugeBytes);
  if (last <= first) return;
  static PageTaker taker;
  pool->ParallelFor(static_cast<int64_t>(last - first), [&](int64_t index, int) {
    taker.Take(block + (first + static_cast<size_t>(index)) * kHugeBytes);
  });
}

// Memory of `num_bytes` of zeros; mapped blocks are passed to `advise` (Map).
template <typename Advise>
Result<std::shared_ptr<void>> Allocate(size_t num_bytes, const Advise& advise) {
  const auto no_memory = [num_bytes] {
    return MakeStatus(
        StatusCode::kOutOfMemory,
        "no memory for {} bytes; use a smaller model, shorter sequences or fewer requests",
        num_bytes);
  };
  if (num_bytes > PTRDIFF_MAX - kAlignment) return no_memory();
  if (num_bytes >= kMappedBytesMin) {
    std::shared_ptr<void> block = Map(num_bytes, advise);
    return block != nullptr ? Result<std::shared_ptr<void>>(std::move(block)) : no_memory();
  }
  const size_t rounded = (num_bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return no_memory();
  std::memset(data, 0, rounded);
  return std::shared_ptr<void>(data, [](void* block) { std::free(block); });
}

// Memory whose pages TakePages takes.
Result<std::shared_ptr<void>> AllocateToTake(size_t num_bytes) {
  return Allocate(num_bytes,
                  [](std::byte* begin, size_t size) { madvise(begin, size, MADV_HUGEPAGE); });
}

}  // namespace

Result<std::shared_ptr<void>> AllocateZeroed(size_t num_bytes) {
  return Allocate(num_bytes, AskForLargePages);
}

Result<SharedBlock> SharedBlock::Allocate(size_t num_bytes) {
  MINISGL_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, AllocateToTake(num_bytes));
  return SharedBlock(std::move(memory), num_bytes);
}

size_t SharedBlock::BytesOf(size_t num_bytes) {
  return CeilDiv(num_bytes, kAlignment) * kAlignment;
}

std::shared_ptr<void> SharedBlock::Take(size_t num_bytes, ThreadPool* pool) {
  if (num_bytes > size_ - used_) return nullptr;
  const size_t begin = used_, end = used_ + num_bytes;
  if (end > num_ready_) {
    const size_t ready = std::min(size_, std::max(end, num_ready_ + kReadyBytes));
    TakePages(static_cast<std::byte*>(memory_.get()), size_, num_ready_, ready, pool);
    num_ready_ = ready;
  }
  used_ = std::min(size_, begin + BytesOf(num_bytes));
  return {memory_, static_cast<std::byte*>(memory_.get()) + begin};
}

Result<std::shared_ptr<void>> AllocateToFill(size_t num_bytes, Packing packing) {
  if (packing.block != nullptr) {
    std::shared_ptr<void> shared = packing.block->Take(num_bytes, packing.pool);
    if (shared != nullptr) return shared;
  }
  MINISGL_ASSIGN_OR_RETURN(std::shared_ptr<void> block, AllocateToTake(num_bytes));
  TakePages(static_cast<std::byte*>(block.get()), num_bytes, 0, num_bytes, packing.pool);
  return block;
}

float* FloatBuffer::Reserve(size_t count) {
  if (count > count_) {
    storage_.reset();
    count_ = 0;
    if (count > SIZE_MAX / sizeof(float)) throw std::bad_alloc();
    auto storage = AllocateZeroed(count * sizeof(float));
    if (!storage.ok()) throw std::bad_alloc();
    storage_ = std::move(storage).value();
    count_ = count;
  }
  return static_cast<float*>(storage_.get());
}

}  // namespace minisgl::cpu
