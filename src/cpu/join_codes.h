// Joins codes that stand one a byte to the words of CodeOrder::kWords (coded_matrix.h), in vectors
// of any processor.
#pragma once

#include <cstdint>

namespace minisgl::cpu {

// The numbers of codes that are joined at a time.
inline constexpr int64_t kJoined4 = 32, kJoined6 = 64;

// Replaces `count` codes of 4 bits at `codes` by words of eight: count / 8 of them, from the
// beginning on. REQUIRES that count is a multiple of kJoined4
void JoinCodes4(uint8_t* codes, int64_t count);

// The same for codes of 6 bits: three words for each sixteen codes. REQUIRES that count is a
// multiple of kJoined6
void JoinCodes6(uint8_t* codes, int64_t count);

}  // namespace minisgl::cpu
