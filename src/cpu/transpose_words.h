// Transposes words of 32 bits, or bytes, for packing and for decoding blocks.
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

inline constexpr int64_t kTransposedBytes = 16;

// to[byte][row] = byte `byte` of kTransposedBytes from rows[row] + offset on, of sixteen rows.
void TransposeBytes(std::span<const std::byte* const> rows, size_t offset, std::byte* to);

}  // namespace minisgl::cpu
