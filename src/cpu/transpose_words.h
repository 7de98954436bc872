// Transposes words of 32 bits, for packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace minisgl::cpu {

inline constexpr int64_t kTransposedWords = 16;

// to[word][row] = word `word` of sixteen from rows[row] + offset on, of sixteen rows.
void TransposeWords(std::span<const std::byte* const> rows, size_t offset, std::byte* to);

}  // namespace minisgl::cpu
