#include "runtime/stop_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace minisgl::runtime {
namespace {

struct Streamed {
  std::string text;
  bool stopped = false;
};

Streamed Stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopFilter filter(stops);
  Streamed streamed;
  for (const std::string& piece : pieces) {
    const StopFilter::Output output = filter.Push(piece);
    streamed.text += output.text;
    if (output.stopped) {
      streamed.stopped = true;
      return streamed;
    }
  }
  streamed.text += filter.Finish();
  return streamed;
}

TEST(StopFilterTest, TextBeforeTheStopStringPassesAndNothingAfter) {
  const Streamed streamed = Stream({"END"}, {"one two E", "ND three"});
  EXPECT_EQ(streamed.text, "one two ");
  EXPECT_TRUE(streamed.stopped);
}

TEST(StopFilterTest, TheStopStringStaysIfItIsKept) {
  StopFilter filter({"ND t", "D t", "END"}, /*keeps_stop=*/true);
  EXPECT_EQ(filter.Push("one E").text, "one ");
  const StopFilter::Output output = filter.Push("N three END");
  EXPECT_EQ(output.text, "EN three END");
  EXPECT_TRUE(output.stopped);
  StopFilter other({"ND t", "D t"}, /*keeps_stop=*/true);
  EXPECT_EQ(other.Push("one END three").text, "one END t");
}

TEST(StopFilterTest, APartialMatchIsHeldBackUntilItIsNone) {
  StopFilter filter({"\n\nQ:"});
  EXPECT_EQ(filter.Push("a\n").text, "a");
  EXPECT_EQ(filter.Push("\n").text, "");
  EXPECT_EQ(filter.Push("b").text, "\n\nb");
  EXPECT_EQ(filter.Push("\n").text, "");
  EXPECT_EQ(filter.Finish(), "\n");
}

TEST(StopFilterTest, TheStopStringThatIsCompleteFirstCuts) {
  EXPECT_EQ(Stream({"bcd", "b"}, {"a", "b", "cd"}).text, "a");
  EXPECT_EQ(Stream({"bcd", "c"}, {"abcd"}).text, "ab");
  EXPECT_EQ(Stream({"zz", "c"}, {"abczz"}).text, "ab");
}

TEST(StopFilterTest, EmptyStopStringsAndNoneLetEverythingThrough) {
  EXPECT_EQ(Stream({}, {"a", "b"}).text, "ab");
  EXPECT_EQ(Stream({""}, {"a", "b"}).text, "ab");
}

TEST(StopFilterTest, BeforeItMayStopAWholeStopStringIsTextAndAPartIsHeldBack) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.Push("one END two E", false).text, "one END two ");
  const StopFilter::Output output = filter.Push("ND three");
  EXPECT_EQ(output.text, "");
  EXPECT_TRUE(output.stopped);
}

// The reference: reads the text letter by letter and ends it at the first complete stop string; if
// several are complete there, at the longest.
Streamed ReadLetterByLetter(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t cut = std::string::npos;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        cut = std::min(cut, end - stop.size());
      }
    }
    if (cut != std::string::npos) return {text.substr(0, cut), true};
  }
  return {text, false};
}

TEST(StopFilterTest, EverySplitGivesWhatReadingLetterByLetterGives) {
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += "ab"[random() % 2];
    std::vector<std::string> stops;
    for (unsigned i = 0; i < 1 + random() % 3; ++i) {
      std::string stop;
      for (unsigned j = 0; j < 1 + random() % 5; ++j) stop += "ab"[random() % 2];
      stops.push_back(stop);
    }
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = 1 + random() % 5;
      pieces.push_back(text.substr(begin, length));
      begin += length;
    }
    const Streamed expected = ReadLetterByLetter(stops, text), streamed = Stream(stops, pieces);
    EXPECT_EQ(streamed.text, expected.text) << text;
    EXPECT_EQ(streamed.stopped, expected.stopped) << text;
  }
}

}  // namespace
}  // namespace minisgl::runtime
