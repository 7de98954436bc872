// The memory through which kernels of several ranks exchange their parts of sums and of logits.
//
// Each rank has a piece of memory that all ranks can write: of its device, or of the host where
// devices cannot reach each other. A block of a kernel exchanges only with the blocks of the same
// number on the other ranks. In the piece of rank r it has
//   - flags[phase][from]: the number of the last exchange whose parts (phase 0) or sums (phase 1)
//     are there from rank `from`;
//   - parts[parity][from]: the parts that rank `from` sends to r; sums[parity]: the others' sums,
//     which r reads. The parity of the exchange's number selects them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "minisgl/base/host_device.h"

namespace minisgl::cuda {

inline constexpr int kExchangeRanksMax = 8;
// Upper bound on the blocks of a kernel: so few that two ranks on one device, which wait for each
// other, have all their blocks resident.
inline constexpr int kExchangeBlocks = 64;
inline constexpr int kExchangePackBytes = 16;
// Packs that a block exchanges at a time: 32 KiB. All blocks of a kernel together have 2 MiB under
// way, as much as a link of 450 GB/s moves in 5 microseconds, the time of two meetings.
inline constexpr int kExchangePacks = 2048;

// The exchange as a kernel of rank `rank` sees it. Plain data: an argument of the kernel.
struct RankExchange {
  int32_t rank = 0;
  int32_t count = 1;
  std::byte* pieces[kExchangeRanksMax] = {};  // ExchangeBytes(count) of each rank, zeroed once
  uint32_t* epochs = nullptr;  // [kExchangeBlocks] of this device: exchanges so far; zeroed once
  // [1 + kExchangeRanksMax] host memory of all ranks. The first word: a rank has failed, and every
  // wait ends. 1 + r: 1 + the rank that rank r has waited for too long.
  uint32_t* alarm = nullptr;
  int64_t wait_ns = 0;         // of each meeting, at most
  int64_t one_shot_bytes = 0;  // sums of more bytes take two shots
  // No two ranks share a device: the next kernel may begin while this one waits for other ranks.
  // On one device its blocks could take the places of another rank's, for which this one waits.
  bool on_distinct_devices = false;
};

inline constexpr size_t kAlarmBytes = (1 + kExchangeRanksMax) * sizeof(uint32_t);

// Bytes from the start of a piece.
inline constexpr int64_t kExchangeFlagBytes = int64_t{2} * kExchangeBlocks * kExchangeRanksMax * 4;
MINISGL_HOST_DEVICE inline int64_t ExchangeFlag(int phase, int block, int from) {
  return ((int64_t{phase} * kExchangeBlocks + block) * kExchangeRanksMax + from) * 4;
}
// Place `from` = count holds the sums.
MINISGL_HOST_DEVICE inline int64_t ExchangePlace(int count, int block, int parity, int from) {
  constexpr int64_t kBytes = int64_t{kExchangePacks} * kExchangePackBytes;
  const int64_t place = (int64_t{block} * 2 + parity) * (count + 1) + from;
  return kExchangeFlagBytes + place * kBytes;
}
// Bytes that the first `num_blocks` blocks exchange through.
MINISGL_HOST_DEVICE inline int64_t ExchangeBytes(int count, int num_blocks = kExchangeBlocks) {
  return ExchangePlace(count, num_blocks, 0, 0);
}

}  // namespace minisgl::cuda
