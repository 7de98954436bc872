// The shared memory of the running block and what is known of each of its bytes: whether it was
// written in this block, by whom and when, who has read it since, and whether an asynchronous copy
// into it is under way. Every access is checked against that; a fault is thrown at once.
//
// Time: `epoch` counts barriers (and blocks) since the start, `time` the __syncwarps of a warp. An
// access is ordered after another of the same block where a barrier lies between the two or, within
// a warp, a __syncwarp with both lanes in its mask (or a chain of such). Nothing else orders:
// shuffles and votes are no memory barriers. An access that is not ordered after one of another
// thread is a race, unless both read or both are atomic.
//
// Knowledge is kept for each 16 bytes while all accesses are to all 16, and for each byte from the
// first that is not until the next write of all 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace minisgl::emulator {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Who accesses, and when.
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

// What is wrong with an access: empty where nothing is.
using Complaint = std::string;

class SharedMemory {
 public:
  // For the next block, which has num_bytes; forgets what was.
  void Begin(size_t num_bytes);
  unsigned char* data() { return bytes_.data(); }
  size_t size() const { return size_; }

  // REQUIRES [offset, offset + num_bytes) within size().
  Complaint Check(Access access, const Actor& actor, size_t offset, size_t num_bytes);
  // A copy of 16 bytes to `offset`, a multiple of 16, starts: its bytes may not be touched until
  // it has ended.
  Complaint BeginCopy(const Actor& actor, size_t offset);
  void EndCopy(const Actor& actor, size_t offset);

 private:
  // Accesses of one kind to the same bytes in one epoch: the lanes that did, of one warp, and the
  // time of the last. With lanes that are not ordered among each other the last stands for all,
  // which is exact while __syncwarps have full masks.
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

}  // namespace minisgl::emulator
