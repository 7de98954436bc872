// The emulated device's global memory: its pieces, and a history of each 4-byte word that accesses
// are checked against (machine_global.cc).
//
// Blocks have numbers that rise over all launches: a number names the kernel, too, and what an
// earlier kernel left in a word's history needs no clearing. Memory of the process, used by one
// thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda_api.h"

namespace minisgl::cuda::emulator {

inline constexpr uintptr_t kPageBytes = 4096;

// The last accesses to a word. Clock: see block_order.h.
struct ShadowWord {
  uint32_t writer = 0, writer_clock = 0;  // the number of the block that wrote last
  uint32_t reader = 0, reader_clock = 0;  // ... that read last, since that write
  uint32_t other = 0, other_clock = 0;    // another block that read before the reader
  uint16_t writer_thread = 0, reader_thread = 0, other_thread = 0;
  uint8_t written : 4 = 0;  // bytes that the writer wrote
  uint8_t atomic : 1 = 0;   // it wrote atomically
  uint8_t mixed : 1 = 0;    // several threads of its kernel wrote different bytes
  uint8_t read : 4 = 0;     // bytes that the reader read
  uint8_t other_read : 4 = 0;
};

// The words of a page; null if it is not device memory. Pieces begin at pages, and at most their
// last page is not whole.
struct GlobalPage {
  uintptr_t page = 0;  // address / kPageBytes
  ShadowWord* words = nullptr;
  size_t num_bytes = 0;  // of the page that belong to the piece
};

class GlobalMemory {
 public:
  static GlobalMemory& Get();

  // REQUIRES that `begin` is a multiple of kPageBytes and no other object is in its pages.
  void Register(uintptr_t begin, size_t num_bytes);
  void Unregister(uintptr_t begin);
  // True if one piece holds all of [begin, begin + num_bytes).
  bool Contains(uintptr_t begin, size_t num_bytes);
  // "byte 8 of the 512 at 0x..."
  std::string Text(uintptr_t address);

  const GlobalPage& PageOf(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    const GlobalPage& cached = cache_[page % kCachedPages];
    return cached.page == page ? cached : Fill(page);
  }

  // Programmatic dependent launch. A kernel that is launched so may begin before earlier kernels
  // have ended: those from the first `unfinished` block on.
  //
  // Returns the number of the first block of a new kernel.
  uint32_t BeginKernel(const std::string& name, uint64_t num_blocks, bool programmatic,
                       CudaStream stream);
  // `released_early`: each block of the kernel called GridRelease before GridWait, so that the next
  // kernel may begin while kernels before this one run.
  void EndKernel(bool released_early);
  // Everything launched until now has ended.
  void Finish() { FinishUntil(next_number_); }
  void FinishUntil(uint32_t number);
  uint32_t next_number() const { return next_number_; }
  uint32_t unfinished() const { return unfinished_; }
  CudaStream stream() const { return stream_; }  // of the last kernel
  const std::string& KernelOf(uint32_t number) const;
  // A kernel of the host's own, as a whole: its reads and writes.
  void MarkRead(uintptr_t begin, size_t num_bytes, uint32_t number);
  void MarkWritten(uintptr_t begin, size_t num_bytes, uint32_t number);

 private:
  static constexpr size_t kCachedPages = 1024;
  using Words = std::array<ShadowWord, kPageBytes / 4>;

  const std::pair<const uintptr_t, size_t>* PieceOf(uintptr_t address) const;
  const GlobalPage& Fill(uintptr_t page);
  template <typename Fn>
  void ForWords(uintptr_t begin, size_t num_bytes, const Fn& fn);

  std::map<uintptr_t, size_t> pieces_;                           // bytes by begin
  uintptr_t last_begin_ = 0, last_end_ = 0;                      // the piece found last
  std::unordered_map<uintptr_t, std::unique_ptr<Words>> words_;  // by page
  std::vector<std::unique_ptr<Words>> free_words_;               // their contents are old
  std::array<GlobalPage, kCachedPages> cache_ = {};
  struct Kernel {
    std::string name;
    bool programmatic;
  };
  std::map<uint32_t, Kernel> kernels_;  // by first block; the unfinished ones and the last
  uint32_t next_number_ = 1;
  uint32_t unfinished_ = 1;
  CudaStream stream_ = nullptr;
};

}  // namespace minisgl::cuda::emulator
