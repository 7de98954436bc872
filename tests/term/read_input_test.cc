// A pipe that is read whole, except if its first line is refused.
#include "term/read_input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::term {
namespace {

class ReadInputTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(ends_), 0); }
  void TearDown() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  void Send(const std::string& text) const {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void EndInput() {
    close(ends_[1]);
    ends_[1] = -1;
  }
  Result<std::string> Read(const std::string& refused) {
    return ReadAll(ends_[0], "the pipe", 1 << 20, "", [&](std::string_view line) {
      seen_.emplace_back(line);
      return line == refused ? UsageError("refused") : Status();
    });
  }

  int ends_[2] = {-1, -1};
  std::vector<std::string> seen_;
};

TEST_F(ReadInputTest, TheFirstLineIsRefusedWhileThePipeIsOpen) {
  Send("\n  \nrow\nnext");
  EXPECT_EQ(Read("row").status().code(), StatusCode::kUsage);
  EXPECT_EQ(seen_, std::vector<std::string>{"row"});
}

TEST_F(ReadInputTest, OnlyTheFirstLineIsChecked) {
  Send("one\nrow\n");
  EndInput();
  const Result<std::string> text = Read("row");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "one\nrow\n");
  EXPECT_EQ(seen_, std::vector<std::string>{"one"});
}

TEST_F(ReadInputTest, ALineWithoutItsBreakIsCheckedAtTheEnd) {
  Send("\nrow");
  EndInput();
  EXPECT_FALSE(Read("row").ok());
}

TEST_F(ReadInputTest, BlankLinesAreNoLine) {
  Send("\n \n");
  EndInput();
  EXPECT_TRUE(Read("").ok());
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace minisgl::term
