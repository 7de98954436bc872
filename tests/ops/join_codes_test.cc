// Codes that are joined to words have the bits that coded_matrix.h says.
#include "cpu/join_codes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cpu/coded_matrix.h"
#include "minisgl/base/random.h"

namespace minisgl::cpu {
namespace {

std::vector<uint8_t> CodesOfBits(int64_t count, int bits) {
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < count; ++i) {
    codes.push_back(
        static_cast<uint8_t>(PhiloxBits(5, static_cast<uint64_t>(i), 0).word[0] >> (32 - bits)));
  }
  return codes;
}

uint32_t WordAt(const std::vector<uint8_t>& bytes, int64_t index) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

TEST(JoinCodesTest, CodesOf4BitsAreNibblesFromTheLowestOn) {
  for (const int64_t count : {kJoined4, 5 * kJoined4}) {
    const std::vector<uint8_t> codes = CodesOfBits(count, 4);
    std::vector<uint8_t> joined = codes;
    JoinCodes4(joined.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t word = WordAt(joined, i / kWordInputs);
      EXPECT_EQ(word >> (i % kWordInputs * 4) & 0xF, codes[static_cast<size_t>(i)]) << i;
    }
  }
}

TEST(JoinCodesTest, CodesOf6BitsAreTwoWordsOfNibblesAndOneOfUpperBits) {
  for (const int64_t count : {kJoined6, 3 * kJoined6}) {
    const std::vector<uint8_t> codes = CodesOfBits(count, 6);
    std::vector<uint8_t> joined = codes;
    JoinCodes6(joined.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t unit = i / kUnitInputs * kUnitWords, at = i % kUnitInputs;
      const uint32_t lower = WordAt(joined, unit + at / kWordInputs) >> (at % kWordInputs * 4);
      // Byte b has the upper bits of inputs 2 b, 2 b + 1, 2 b + 8 and 2 b + 9.
      const int64_t byte = at % 8 / 2, place = at % 2 + at / 8 * 2;
      const uint32_t upper = WordAt(joined, unit + 2) >> (byte * 8 + place * 2);
      EXPECT_EQ((lower & 0xF) | (upper & 3) << 4, codes[static_cast<size_t>(i)]) << i;
    }
  }
}

}  // namespace
}  // namespace minisgl::cpu
