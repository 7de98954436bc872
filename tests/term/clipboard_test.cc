#include "term/clipboard.h"

#include <gtest/gtest.h>

namespace minisgl::term {
namespace {

TEST(ClipboardTest, TheSequenceHoldsTheTextInBase64) {
  EXPECT_EQ(ClipboardSequence(""), "\x1b]52;c;\x07");
  EXPECT_EQ(ClipboardSequence("f"), "\x1b]52;c;Zg==\x07");
  EXPECT_EQ(ClipboardSequence("fo"), "\x1b]52;c;Zm8=\x07");
  EXPECT_EQ(ClipboardSequence("foo"), "\x1b]52;c;Zm9v\x07");
  EXPECT_EQ(ClipboardSequence("foobar"), "\x1b]52;c;Zm9vYmFy\x07");
  EXPECT_EQ(ClipboardSequence("\xff\xfe\xfd\xfc"), "\x1b]52;c;//79/A==\x07");
}

}  // namespace
}  // namespace minisgl::term
