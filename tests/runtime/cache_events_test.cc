// Events of the prefix cache: replayed, they give exactly the blocks that are cached.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/sha256.h"
#include "runtime/cache_event_writer.h"
#include "runtime/runtime_fixture.h"

namespace minisgl::runtime {
namespace {

constexpr int64_t kPageSize = 4;  // of SmallLimits

// What a reader of the events knows, who has nothing but their lines.
class Reader {
 public:
  void Read(std::string_view text) {
    ASSERT_TRUE(text.ends_with('\n')) << "a piece is whole lines";
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const auto line = ParseJson(text.substr(0, end));
      text.remove_prefix(end + 1);
      ASSERT_TRUE(line.ok()) << line.status().message();
      Take(*line);
    }
  }

  // The tokens of the longest cached prefix of `ids`.
  int64_t CachedTokens(std::span<const TokenId> ids) const {
    int64_t count = 0;
    std::string parent;
    for (; count + kPageSize <= std::ssize(ids); count += kPageSize) {
      Sha256 hash;
      for (size_t i = 0; i < parent.size(); i += 2) {
        const char byte = static_cast<char>(std::stoi(parent.substr(i, 2), nullptr, 16));
        hash.Add({&byte, 1});
      }
      for (const TokenId id : ids.subspan(static_cast<size_t>(count), kPageSize)) {
        for (int shift = 0; shift < 32; shift += 8) {
          const char byte = static_cast<char>(id >> shift);
          hash.Add({&byte, 1});
        }
      }
      parent = hash.FinishHex();
      const auto found = blocks.find(parent);
      if (found == blocks.end()) break;
      EXPECT_EQ(found->second, count + kPageSize) << "prefix_tokens";
    }
    return count;
  }

  std::map<std::string, int64_t> blocks;  // hash to prefix_tokens
  std::map<std::string, int64_t> counts;  // of events
  std::vector<int64_t> left;              // of resets

 private:
  void Take(const Json& line) {
    const std::string event = line.Find("event")->as_string();
    const double time = line.Find("time")->as_double();
    EXPECT_GE(time, last_time_);
    EXPECT_GT(time, 1.6e9) << "seconds since 1970";
    last_time_ = time;
    ++counts[event];
    if (event == "started") {
      EXPECT_EQ(line.Find("block_tokens")->as_int(), kPageSize);
      EXPECT_EQ(counts.size(), 1u) << "it is the first line";
      return;
    }
    if (event == "reset") {
      left.push_back(line.Find("blocks_left")->as_int());
      return;
    }
    EXPECT_EQ(line.Find("tokens")->as_int(), kPageSize);
    const std::string hash = line.Find("hash")->as_string();
    const std::string parent =
        line.Find("parent")->is_null() ? "" : line.Find("parent")->as_string();
    const int64_t length = line.Find("prefix_tokens")->as_int();
    ASSERT_EQ(parent.empty(), length == kPageSize);
    if (event == "stored") {
      EXPECT_TRUE(parent.empty() || blocks.at(parent) == length - kPageSize);
      EXPECT_TRUE(blocks.emplace(hash, length).second) << "stored twice: " << hash;
      if (!parent.empty()) ++num_children_[parent];
      return;
    }
    ASSERT_EQ(event, "evicted");
    EXPECT_EQ(blocks.erase(hash), 1u) << "evicted, and not stored: " << hash;
    EXPECT_EQ(num_children_[hash], 0) << "evicted before a block behind it: " << hash;
    if (!parent.empty()) --num_children_[parent];
  }

  std::map<std::string, int64_t> num_children_;
  double last_time_ = 0;
};

RuntimeOptions WithReader(Reader* reader) {
  RuntimeOptions options;
  options.cache_event_sink = [reader](std::string_view piece) { reader->Read(piece); };
  return options;
}

TEST(CacheEventsTest, ReplayedTheyGiveWhatIsCachedUnderEvictionAndReset) {
  Reader reader;
  EngineLimits limits = SmallLimits();
  limits.num_pages = 60;
  RuntimeOptions options = WithReader(&reader);
  options.scheduler.admission = AdmissionPolicy::kOptimistic;
  options.scheduler.step = StepPolicy::kMixed;
  LoopDriver driver(options, limits);
  std::mt19937 random(7);
  int64_t hits = 0;
  for (int round = 0; round < 60; ++round) {
    const Prompt prompt = MakePrompt(static_cast<TokenId>(random() % 8 * 5), 10 + random() % 60, 4);
    const int64_t known = reader.CachedTokens(std::span(prompt.ids).first(prompt.ids.size() - 1));
    const RequestId id = driver.Submit(prompt);
    driver.RunToRest();
    const Collected& answer = driver.Told().at(id);
    ASSERT_EQ(answer.done.usage.cached_tokens, known) << "round " << round;
    hits += known;
    const SchedulerStats stats = driver.loop.scheduler().Stats();
    ASSERT_EQ(static_cast<int64_t>(reader.blocks.size()), stats.pages_cached);
    EXPECT_EQ(reader.CachedTokens(prompt.ids), std::ssize(prompt.ids) / kPageSize * kPageSize);
    if (round % 25 == 24) {
      driver.loop.ResetPrefixCache();
      driver.loop.Turn();
      ASSERT_TRUE(reader.blocks.empty());
    }
    if (round % 3 > 0) continue;
    // Several at once, which preempt one another.
    for (int i = 0; i < 8; ++i) driver.Submit(MakePrompt(static_cast<TokenId>(5 * i), 20, 40));
    driver.RunToRest();
    ASSERT_EQ(static_cast<int64_t>(reader.blocks.size()),
              driver.loop.scheduler().Stats().pages_cached);
  }
  const SchedulerStats stats = driver.loop.scheduler().Stats();
  EXPECT_GT(hits, 0);
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(reader.counts["evicted"], 100);
  EXPECT_EQ(reader.counts["started"], 1);
  EXPECT_EQ(reader.left, (std::vector<int64_t>{0, 0}));
}

// What running requests hold outlives a reset, and is not reported as evicted.
TEST(CacheEventsTest, AResetKeepsWhatRuns) {
  Reader reader;
  LoopDriver driver(WithReader(&reader));
  driver.Submit(MakePrompt(1, 20, 4));
  driver.RunToRest();
  const Prompt running = MakePrompt(30, 17, 50);
  driver.Submit(running);
  driver.Turns(4);
  driver.loop.ResetPrefixCache();
  driver.Turns(1);
  ASSERT_EQ(reader.left.size(), 1u);
  EXPECT_GT(reader.left[0], 0);
  EXPECT_GE(reader.CachedTokens(running.ids), 16);
  EXPECT_EQ(reader.CachedTokens(MakePrompt(1, 20, 4).ids), 0);
  driver.RunToRest();
  EXPECT_EQ(static_cast<int64_t>(reader.blocks.size()),
            driver.loop.scheduler().Stats().pages_cached);
}

TEST(CacheEventsTest, ACacheThatKeepsNothingReportsOnlyItsStart) {
  Reader reader;
  RuntimeOptions options = WithReader(&reader);
  options.scheduler.cache = CacheKind::kNaive;
  LoopDriver driver(options);
  driver.Submit(MakePrompt(1, 20, 4));
  driver.RunToRest();
  driver.loop.FinishTrace();
  EXPECT_EQ(reader.counts, (std::map<std::string, int64_t>{{"started", 1}}));
}

// Readers of the events compute hashes themselves.
TEST(CacheEventsTest, HashesAreThoseOfEarlierVersionsAndOfMarks) {
  std::string text;
  CacheEventWriter writer([&text](std::string_view piece) { text += piece; },
                          [] { return CacheEventWriter::Time(); }, kPageSize, 8);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 12; ++i) tokens.push_back(7 + 3 * i);
  const PageId pages[] = {3, 1, 2};
  writer.Stored(std::nullopt, PrefixKey(tokens).first(8), std::span(pages).first(2));
  writer.Stored(1, PrefixKey(tokens).subspan(8), std::span(pages).last(1));
  writer.Flush();
  for (const char* hash : {"bc442ed57e37b5d55017ed457940538dc7e7328cfdda03136d1a8bb004243255",
                           "cc600b1341bb2b931dffe131a1d44bf6cd963d52a89a622eb154e8ccb394d608",
                           "f8b5f600dfcd53f8511cb870f83aac4ce943e23f94066f0f572c36593f9a44fa"}) {
    EXPECT_NE(text.find(fmt::format("\"hash\":\"{}\"", hash)), std::string::npos) << hash;
  }
  writer.Evicted(pages);
  text.clear();
  const std::vector<KeyMark> marks = {{5, {1, 2}}};
  writer.Stored(std::nullopt, PrefixKey(tokens, marks).first(8), std::span(pages).first(2));
  writer.Flush();
  // The first page is before the mark.
  EXPECT_NE(text.find("bc442ed57e37b5d55017ed457940538dc7e7328cfdda03136d1a8bb004243255"),
            std::string::npos);
  EXPECT_NE(text.find("18e57965ab553d159df9daae318ea845526e7867a888b4efb8fff200660a8778"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace minisgl::runtime
