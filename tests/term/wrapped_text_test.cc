// Rows of the program's own lines.
#include "term/wrapped_text.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl::term {
namespace {

TEST(WrapLinesTest, LinesBreakAtBlanks) {
  EXPECT_EQ(WrapLines("a model of sixteen layers on this machine", 20),
            "a model of sixteen\nlayers on this\nmachine");
  EXPECT_EQ(WrapLines("exactly twenty chars and", 20), "exactly twenty chars\nand");
  EXPECT_EQ(WrapLines("one\n\ntwo words", 20), "one\n\ntwo words");
  EXPECT_EQ(WrapLines("", 20), "");
}

TEST(WrapLinesTest, RowsHangBelowTheSecondColumn) {
  EXPECT_EQ(WrapLines("  name    the text of it, in two rows", 30),
            "  name    the text of it, in\n          two rows");
  EXPECT_EQ(WrapLines("  first word and many more after", 20),
            "  first word and\n  many more after");
  // The second column would leave no room.
  EXPECT_EQ(WrapLines("  a long name here   text of it", 24),
            "  a long name here\n      text of it");
  EXPECT_EQ(WrapLines("Ends.  Two blanks after a sentence", 20),
            "Ends.  Two blanks\nafter a sentence");
}

TEST(WrapTableTest, RowsHangBelowTheSecondColumn) {
  EXPECT_EQ(
      WrapTable("weights   4951296 parameters in 56 tensors\n            of 9 MiB, in one file",
                30),
      "weights   4951296 parameters\n          in 56 tensors\n            of 9 MiB, in one\n"
      "            file");
  EXPECT_EQ(WrapTable("one column of words", 20), "one column of words");
}

TEST(WrapLinesTest, WideCharactersCountTwice) {
  EXPECT_EQ(WrapLines("\u4e2d\u6587\u4e2d\u6587\u4e2d \u4e2d\u6587\u4e2d\u6587\u4e2d", 20),
            "\u4e2d\u6587\u4e2d\u6587\u4e2d\n\u4e2d\u6587\u4e2d\u6587\u4e2d");
  EXPECT_EQ(WrapLines("\xff\xff of bytes that are no text", 20),
            "\xff\xff of bytes that are\nno text");
}

TEST(WrapLinesTest, LongWordsAndNarrowTerminalsAreLeftAlone) {
  const std::string word(50, 'x');
  EXPECT_EQ(WrapLines("a " + word + " b", 20), "a\n" + word + "\nb");
  EXPECT_EQ(WrapLines("a text of many words here", 10), "a text of many words here");
}

TEST(WrapEntryTest, NamesStandInOneColumn) {
  EXPECT_EQ(WrapEntry("/undo", "take back the last message", 10, 40),
            "  /undo   take back the last message");
  EXPECT_EQ(WrapEntry("/undo", "take back the last message", 10, 30),
            "  /undo   take back the last\n          message");
}

TEST(WrapEntryTest, WithoutRoomTheTextStandsBelow) {
  EXPECT_EQ(WrapEntry("/branch [NAME]", "fork the conversation here", 10, 40),
            "  /branch [NAME]\n      fork the conversation here");
  EXPECT_EQ(WrapEntry("/undo", "take back the last message", 20, 30),
            "  /undo\n      take back the last\n      message");
}

}  // namespace
}  // namespace minisgl::term
