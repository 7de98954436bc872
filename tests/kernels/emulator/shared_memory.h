// The shared memory of the running block and the history of each byte: whether it was written in
// this block, by which thread and when, which threads have read it since, and whether an
// asynchronous copy into it is in flight. Every access is checked against it; a fault is thrown at
// once.
//
// Time: `epoch` counts barriers (and blocks) since the start, `time` the __syncwarps of a warp. An
// access is ordered after another of the same block if a barrier is between the two or, within a
// warp, a __syncwarp with both lanes in its mask (or a chain of them). Nothing else orders:
// shuffles and votes are not memory barriers. An access that is not ordered after another thread's
// is a race, unless both read or both are atomic.
//
// The history is kept for 16 bytes at a time as long as all accesses are to all 16; after one that
// is not, for each byte, until the next write of all 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace minisgl::cuda::emulator {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// The thread and time of an access.
struct Actor {
  uint32_t thread = 0;
  uint32_t epoch = 0;
  uint32_t time = 0;       // __syncwarps of the thread's warp so far
  uint32_t full_sync = 0;  // accesses of the warp before this time are ordered before this one
  // [32] the same for each lane by itself, or null where all are at full_sync.
  const uint32_t* lane_sync = nullptr;

  uint32_t warp() const { return thread / 32; }
  uint32_t lane() const { return thread % 32; }
};

// The error of an access; empty if there is none.
using Complaint = std::string;

class SharedMemory {
 public:
  // Starts the next block, of num_bytes; clears the history.
  void Begin(size_t num_bytes);
  unsigned char* data() { return bytes_.data(); }
  size_t size() const { return size_; }

  // REQUIRES [offset, offset + num_bytes) within size().
  Complaint Check(Access access, const Actor& actor, size_t offset, size_t num_bytes);
  // Starts a copy of 16 bytes to `offset`, a multiple of 16: its bytes may not be accessed until it
  // has ended.
  Complaint BeginCopy(const Actor& actor, size_t offset);
  void EndCopy(const Actor& actor, size_t offset);

 private:
  // Accesses of one kind to the same bytes in one epoch: the lanes, of one warp, and the time of
  // the last. The last represents lanes that are not ordered among each other, which is exact as
  // long as __syncwarps have full masks.
  struct Accesses {
    uint32_t epoch = 0;
    uint32_t lanes = 0;
    uint32_t time = 0;
    uint32_t warp = 0;  // or kSeveralWarps
  };
  enum class State : uint32_t { kUnwritten, kWritten, kAtomic, kInFlight };
  struct Cell {
    Accesses written, read;
    State state = State::kUnwritten;
  };
  static constexpr uint32_t kSeveralWarps = 0xffffffffu;
  static constexpr size_t kLine = 16;

  static bool Ordered(const Accesses& earlier, const Actor& actor);
  static Accesses Of(const Actor& actor);
  static void Add(Accesses* accesses, const Actor& actor);
  static std::string Text(const Accesses& accesses);
  Complaint CheckCell(Access access, const Actor& actor, Cell* cell) const;
  Complaint CheckLine(Access access, const Actor& actor, size_t line, size_t begin, size_t end);

  std::vector<unsigned char> bytes_;
  size_t size_ = 0;
  std::vector<Cell> lines_;
  std::vector<uint8_t> split_;     // of each line: its bytes' cells hold
  std::unique_ptr<Cell[]> cells_;  // [16 for each line]
};

}  // namespace minisgl::cuda::emulator
