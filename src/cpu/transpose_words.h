// Transposes words of 32 bits, for packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace minisgl::cpu {

inline constexpr int64_t kTransposedWords = 16;

// to[word][row] = word `word` of `num_words` from rows[row] + offset on, of sixteen rows. REQUIRES
// that num_words is a multiple of 4
void TransposeWords(std::span<const std::byte* const> rows, size_t offset, std::byte* to,
                    size_t num_words = kTransposedWords);

}  // namespace minisgl::cpu
