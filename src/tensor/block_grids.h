// The codebooks of the formats IQ1, IQ2 and IQ3: rows of four or eight numbers, one a byte, the
// first lowest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace minisgl::tensor {

inline constexpr size_t kIq2XxsRows = 256, kIq2XsRows = 512, kIq2SRows = 1024;
inline constexpr size_t kIq3XxsRows = 256, kIq3SRows = 512, kIq1Rows = 2048;

// Made once; the memory lives as long as the program. Numbers of IQ2 and IQ3 are positive and have
// 6 bits.
const uint64_t* Iq2XxsGrid();
const uint64_t* Iq2XsGrid();
const uint64_t* Iq2SGrid();
const uint32_t* Iq3XxsGrid();
const uint32_t* Iq3SGrid();
// Two forms of each row of IQ1_S and IQ1_M: 8 times its numbers, which are -1, 0 or 1, plus 1, and
// kIq1Rows further on the same less 1.
const uint64_t* Iq1Grid();

// [16] the numbers of codes (block_codes.h): a codebook's, and their negatives; the same.
const float* Iq2Numbers();
const float* Iq3XxsNumbers();
const float* Iq3SNumbers();
const float* Iq1Numbers();

// The rows of a codebook, each the places of its numbers in a list in ascending order: of 2 bits in
// IQ2, of 3 bits in IQ3, the first lowest.
enum class Codebook : uint8_t { kIq2Xxs, kIq2Xs, kIq2S, kIq3Xxs, kIq3S };
std::vector<uint16_t> RowPlaces(Codebook codebook);

// [256] the bytes 0xFF where a bit is set, the lowest bit's first.
const uint64_t* SignMasks();
// [128] the same for signs in 7 bits: the eighth makes the number of set ones even.
const uint64_t* SignMasksOf7Bits();

}  // namespace minisgl::tensor
