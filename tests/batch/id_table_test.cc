// The id table: no id is lost or mistaken for another, and a million ids take the documented
// memory.
#include "batch/id_table.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "minisgl/base/sha256.h"

namespace minisgl::batch {
namespace {

std::string HexOf(const std::string& text) {
  Sha256 hasher;
  hasher.Add(text);
  return hasher.FinishHex();
}

// The examples of FIPS 180-4, and lengths around block boundaries.
TEST(Sha256Test, GivesTheStandardsDigests) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, DoesNotDependOnThePieces) {
  for (const size_t length : {55, 56, 63, 64, 65, 200}) {
    const std::string text(length, 'x');
    Sha256 hasher;
    for (const char byte : text) hasher.Add({&byte, 1});
    EXPECT_EQ(hasher.FinishHex(), HexOf(text)) << length;
  }
}

// Compares the instructions of the processor, if it has them, with the plain code.
TEST(Sha256Test, InstructionsGiveWhatPlainCodeDoes) {
  std::string text;
  for (size_t length = 0; length < 700; length += 13) {
    while (text.size() < length) text += static_cast<char>(text.size() * 167 + length);
    Sha256 plain(Sha256::Path::kPlain), fastest;
    plain.Add(text);
    fastest.Add(std::string_view(text).substr(0, length / 3));
    fastest.Add(std::string_view(text).substr(length / 3));
    EXPECT_EQ(plain.FinishHex(), fastest.FinishHex()) << length;
  }
}

TEST(IdTableTest, FindsTheFirstRowOfAnId) {
  IdTable ids;
  EXPECT_EQ(ids.Note(Json("a"), 0), std::nullopt);
  EXPECT_EQ(ids.Note(Json("b"), 4), std::nullopt);
  EXPECT_EQ(ids.Note(Json("a"), 9), 0);
  EXPECT_EQ(ids.Note(Json(1), 10), std::nullopt);
  EXPECT_EQ(ids.Note(Json("1"), 11), std::nullopt);
  EXPECT_EQ(ids.Note(Json(), 12), std::nullopt);
  EXPECT_EQ(ids.Note(Json(), 13), std::nullopt);
  EXPECT_EQ(ids.Find(Json("b")), 4);
  EXPECT_EQ(ids.Find(Json("c")), std::nullopt);
  EXPECT_EQ(ids.Find(Json()), std::nullopt);
}

TEST(IdTableTest, KeepsEveryIdWhileGrowing) {
  constexpr int64_t kRows = 30000;
  IdTable ids;
  for (int64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(ids.Note(Json(fmt::format("row-{}", row)), row), std::nullopt) << row;
  }
  for (int64_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(ids.Note(Json(fmt::format("row-{}", row)), 7), row);
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(IdTableTest, CostsLessThan32BytesARow) {
  for (const int64_t rows : {100000, 130000, 160000, 200000}) {
    const auto used = [] {
      const struct mallinfo2 info = mallinfo2();
      return info.uordblks + info.hblkhd;
    };
    const size_t before = used();
    IdTable ids;
    for (int64_t row = 0; row < rows; ++row) ids.Note(Json(row), row);
    EXPECT_LT(used() - before, static_cast<size_t>(rows) * 32) << rows;
  }
}
#endif

}  // namespace
}  // namespace minisgl::batch
