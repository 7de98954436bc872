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

}  // namespace minisgl::cpu
