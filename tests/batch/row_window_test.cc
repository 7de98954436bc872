// Choice of the next row: the one with the longest common prefix, with a bound on the waiting time
// of every row.
#include "batch/row_window.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace minisgl::batch {
namespace {

ReadyRow RowOf(int64_t index, const std::string& prompt, int32_t priority = 0) {
  ReadyRow ready;
  ready.row.index = index;
  ready.row.priority = priority;
  ready.bytes = 10;
  ready.prompts.resize(1);
  ready.prompts[0].ids.assign(prompt.begin(), prompt.end());
  return ready;
}

std::string TakeAll(RowWindow* window) {
  std::string order;
  while (!window->empty()) order += std::to_string(window->TakeNext().row.index);
  return order;
}

TEST(RowWindowTest, RowsThatShareAPrefixFollowEachOther) {
  RowWindow window(100);
  const char* prompts[] = {"ba", "ab", "bb", "aa", "ca", "b"};
  for (int i = 0; i < 6; ++i) window.Add(RowOf(i, prompts[i]));
  EXPECT_EQ(window.num_answers(), 6);
  EXPECT_EQ(window.bytes(), 60u);
  EXPECT_EQ(TakeAll(&window), "024315");  // starts with the first of the input and wraps around
  EXPECT_EQ(window.num_answers(), 0);
  EXPECT_EQ(window.bytes(), 0u);
}

ReadyRow RowWithPicture(int64_t index, const std::string& prompt, int64_t place, uint64_t hash) {
  ReadyRow ready = RowOf(index, prompt);
  ready.prompts[0].marks.push_back({place, {hash, 0}});
  return ready;
}

TEST(RowWindowTest, RowsWithOnePictureFollowEachOther) {
  RowWindow window(100);
  window.Add(RowWithPicture(0, "a##x", 1, 7));
  window.Add(RowWithPicture(1, "a##x", 1, 9));
  window.Add(RowWithPicture(2, "a##y", 1, 7));
  window.Add(RowWithPicture(3, "a##b", 1, 9));
  window.Add(RowOf(4, "a##x"));                 // its text spells what stands for a picture
  window.Add(RowWithPicture(5, "a###", 2, 1));  // a picture behind such a text
  window.Add(RowWithPicture(6, "a##xx", 1, 7));
  EXPECT_EQ(TakeAll(&window), "0623145");
}

// The order is one: of any three rows.
TEST(RowWindowTest, RowsWithPicturesAreInAnOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    RowWindow window(1000);
    std::vector<ReadyRow> rows;
    for (int64_t i = 0; i < 12; ++i) {
      std::string prompt;
      for (unsigned length = 1 + random() % 4; length > 0; --length) prompt += "ab"[random() % 2];
      ReadyRow row = RowOf(i, prompt);
      for (int64_t place = 0; place < std::ssize(prompt); ++place) {
        if (random() % 3 == 0) row.prompts[0].marks.push_back({place, {random() % 2, 0}});
      }
      rows.push_back(row);
      window.Add(std::move(row));
    }
    // Rows in one order share no less with their neighbours than with rows behind these.
    std::vector<PrefixKey> keys;
    while (!window.empty()) {
      const auto index = static_cast<size_t>(window.TakeNext().row.index);
      keys.emplace_back(rows[index].prompts[0].ids, rows[index].prompts[0].marks);
    }
    ASSERT_EQ(keys.size(), rows.size());
    // It begins with the first of the input and wraps around once.
    const auto shares = [&](size_t i, size_t j) { return CommonLength(keys[i], keys[j]); };
    size_t breaks = 0;
    for (size_t i = 0; i + 2 < keys.size(); ++i) {
      if (shares(i, i + 1) < shares(i, i + 2)) ++breaks;
    }
    EXPECT_LE(breaks, 1U) << round;
  }
}

TEST(RowWindowTest, EqualPromptsComeInTheOrderOfTheInput) {
  RowWindow window(100);
  for (int i = 0; i < 5; ++i) window.Add(RowOf(i, "same"));
  EXPECT_EQ(TakeAll(&window), "01234");
}

TEST(RowWindowTest, AnAddedRowIsTakenInPrefixOrder) {
  RowWindow window(100);
  for (const auto& [index, prompt] : {std::pair(0, "aa"), {1, "ba"}, {2, "ca"}}) {
    window.Add(RowOf(index, prompt));
  }
  EXPECT_EQ(window.TakeNext().row.index, 0);
  window.Add(RowOf(3, "ab"));
  window.Add(RowOf(4, "cb"));
  EXPECT_EQ(TakeAll(&window), "3124");
}

TEST(RowWindowTest, ASmallerPriorityGoesFirst) {
  RowWindow window(100);
  window.Add(RowOf(0, "a", 1));
  window.Add(RowOf(1, "c"));
  window.Add(RowOf(2, "b"));
  window.Add(RowOf(3, "z", -1));
  EXPECT_EQ(TakeAll(&window), "3210");
}

// Rows with one prefix keep coming: the others wait no longer than the bound.
TEST(RowWindowTest, NoRowIsOvertakenByMoreThanTheBound) {
  constexpr int64_t kPassedMax = 20, kRows = 2000;
  std::mt19937 random(7);
  RowWindow window(kPassedMax);
  std::vector<int64_t> came(kRows);
  int64_t taken = 0;
  const auto take = [&] {
    const int64_t index = window.TakeNext().row.index;
    // Rows that exceed their bound at the same time go one after another.
    EXPECT_LE(taken - came[static_cast<size_t>(index)], kPassedMax + 10);
    ++taken;
  };
  for (int64_t index = 0; index < kRows; ++index) {
    came[static_cast<size_t>(index)] = taken;
    const bool rare = random() % 10 == 0;
    window.Add(RowOf(index, (rare ? "z" : "a") + std::to_string(index)));
    if (window.num_answers() >= 10) take();
  }
  while (!window.empty()) take();
  EXPECT_EQ(taken, kRows);
}

}  // namespace
}  // namespace minisgl::batch
