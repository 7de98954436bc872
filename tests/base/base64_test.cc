// Base64: what is decoded, what is refused, and the way back.
#include "minisgl/base/base64.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace minisgl {
namespace {

TEST(Base64Test, IsDecodedOrRefused) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("YWJj"), "abc");
  EXPECT_EQ(DecodeBase64("YWI="), "ab");
  EXPECT_EQ(DecodeBase64("YQ=="), "a");
  EXPECT_EQ(DecodeBase64("+/+/"), "\xFB\xFF\xBF");
  for (const char* text : {"Y", "YQ", "YQ=", "Y===", "====", "YQ==YQ==", "YR==", "YW J", "YQ=a",
                           "YW\nJj", "-_-_", "YWJj\n", "YWJ\xFF"}) {
    EXPECT_EQ(DecodeBase64(text), std::nullopt) << text;
  }
  EXPECT_EQ(DecodeBase64(std::string("YWJ\0", 4)), std::nullopt);
}

TEST(Base64Test, EncodedBytesAreDecodedAgain) {
  EXPECT_EQ(EncodeBase64(""), "");
  EXPECT_EQ(EncodeBase64("a"), "YQ==");
  EXPECT_EQ(EncodeBase64("ab"), "YWI=");
  EXPECT_EQ(EncodeBase64("abc"), "YWJj");
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes) << i;
    bytes += static_cast<char>(i * 7);
  }
}

}  // namespace
}  // namespace minisgl
