// See transpose_words.h.
#include "cpu/transpose_words.h"

#include <cstring>

namespace minisgl::cpu {

// In squares of four by four words. Reads a whole cache line of each row at a time, as rows are
// often a power of two apart.
void TransposeWords(std::span<const std::byte* const> rows, size_t offset, std::byte* to,
                    size_t num_words) {
  using Words = uint32_t __attribute__((vector_size(16)));
  constexpr size_t kSide = 4;
  for (size_t lane = 0; lane < kTransposedWords; lane += kSide) {
    for (size_t word = 0; word < num_words; word += kSide) {
      Words row[kSide];
      for (size_t i = 0; i < kSide; ++i) {
        std::memcpy(&row[i], rows[lane + i] + offset + word * sizeof(uint32_t), sizeof(Words));
      }
      const Words low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      const Words low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      const Words high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const Words column[kSide] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                   __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                   __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                   __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (size_t i = 0; i < kSide; ++i) {
        std::memcpy(to + ((word + i) * kTransposedWords + lane) * sizeof(uint32_t), &column[i],
                    sizeof(Words));
      }
    }
  }
}

// Interleaves the rows of one half with the rows of the other, four times.
void TransposeBytes(std::span<const std::byte* const> rows, size_t offset, std::byte* to) {
  using Bytes = uint8_t __attribute__((vector_size(16)));
  Bytes now[16], next[16];
  for (size_t i = 0; i < 16; ++i) std::memcpy(&now[i], rows[i] + offset, sizeof(Bytes));
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      next[2 * i] = __builtin_shufflevector(now[i], now[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                            5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(now[i], now[i + 8], 8, 24, 9, 25, 10, 26, 11, 27,
                                                12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(now, next, sizeof(now));
  }
  std::memcpy(to, now, sizeof(now));
}

}  // namespace minisgl::cpu
