// `minisgl run --prefix-cache` with models whose layers have states: the same rows from a cold, a
// warm, a half-evicted and a damaged cache, and after runs that were killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "answers/run_program.h"
#include "answers/tiny_model_fixture.h"
#include "minisgl/base/random.h"
#include "minisgl/store/cache_tools.h"

namespace minisgl::answers {
namespace {

namespace fs = std::filesystem;

class TinyPrefixCacheTest : public TinyModelTest {
 protected:
  struct Answers {
    std::vector<std::string> rows;
    int64_t cached_tokens = 0;
  };

  std::string Folder() const { return dir_.path() + "/cache"; }
  std::vector<std::string> Arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"run", "-m", dir_.path(), "--file", rows_, "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Answers AnswersOf(const ProgramRun& run) {
    EXPECT_EQ(run.exit_code, 0) << run.err;
    Answers answers;
    const std::vector<Json> rows = run.Rows();
    answers.rows = Comparable(rows);
    for (const Json& row : rows) {
      answers.cached_tokens += row.Find("usage")->Find("cached_tokens")->as_int();
    }
    return answers;
  }
  Answers Run(const std::vector<std::string>& more = {}) const {
    return AnswersOf(answers::RunProgram(Arguments(more)));
  }
  Answers Cached(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--prefix-cache", Folder()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  std::vector<std::string> Files(const std::string& suffix) const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(Folder())) {
      if (entry.path().extension() == suffix) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  // Changes a bit at a random place of every `step`th file.
  static void Damage(const std::vector<std::string>& files, size_t step, uint64_t seed) {
    for (size_t i = 0; i < files.size(); i += step) {
      const RandomBits bits = PhiloxBits(seed, i);
      std::fstream file(files[i], std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(bits.word[0] % fs::file_size(files[i]));
      char byte = 0;
      file.seekg(at).read(&byte, 1);
      byte = static_cast<char>(byte ^ (1 << (bits.word[1] % 8)));
      file.seekp(at).write(&byte, 1);
    }
  }

  std::string rows_;

  void SetUp() override {
    TinyModelTest::SetUp();
    if (!HasFatalFailure()) rows_ = WriteRows();
  }
};

TEST_P(TinyPrefixCacheTest, RowsAreTheSameWhateverIsInTheCache) {
  const Answers none = Run();
  EXPECT_EQ(Cached().rows, none.rows) << "cold";
  const auto states = Files(".state");
  ASSERT_GT(states.size(), 2u);
  EXPECT_EQ(Cached().rows, none.rows) << "warm";
  EXPECT_EQ(Cached({"--page-size", "4"}).rows, none.rows) << "another page size";
  for (const char* suffix : {".kv", ".state"}) {
    const std::vector<std::string> files = Files(suffix);
    for (size_t i = 0; i < files.size(); i += 2) fs::remove(files[i]);
    EXPECT_EQ(Cached().rows, none.rows) << "half of " << suffix << " evicted";
  }
  for (size_t step = 3; step > 0; --step) {
    Damage(Files(".state"), step, step);
    EXPECT_EQ(Cached().rows, none.rows) << "damaged states";
    Damage(Files(".kv"), step, 10 + step);
    EXPECT_EQ(Cached().rows, none.rows) << "damaged blocks";
  }
}

// A long prompt of another process, and one that goes on differently after most of it.
TEST_P(TinyPrefixCacheTest, PromptsBeginAtTheLastStateThatIsKept) {
  std::string text;
  for (int i = 0; i < 90; ++i) text += "Row " + std::to_string(i * 7 % 23) + " is here. ";
  const auto write = [&](const std::string& end) {
    Json row;
    row.Set("prompt", text + end).Set("max_tokens", 5).Set("ignore_eos", true);
    std::ofstream(rows_) << row.Dump() << "\n";
  };
  write("And then?");
  const Answers none = Run();
  EXPECT_EQ(Cached().cached_tokens, 0);
  const Answers warm = Cached();
  EXPECT_EQ(warm.rows, none.rows);
  EXPECT_GE(warm.cached_tokens, 512);
  EXPECT_EQ(warm.cached_tokens % 64, 0);
  write("And?");
  const Answers other = Run(), kept = Cached();
  EXPECT_EQ(kept.rows, other.rows);
  EXPECT_EQ(kept.cached_tokens, warm.cached_tokens);
}

TEST_P(TinyPrefixCacheTest, KilledRunsLeaveNothingThatIsWrong) {
  const Answers none = Run();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    RunAndKill(Arguments({"--prefix-cache", Folder()}),
               std::chrono::milliseconds(PhiloxBits(3, seed).word[0] % 600));
    if (seed % 3 != 1 || !fs::exists(Folder())) continue;
    // The next runs save the removed blocks again.
    for (const std::string& state : Files(".state")) fs::remove(state);
  }
  const auto check = VerifyPrefixCache(Folder(), false);
  ASSERT_TRUE(check.ok()) << check.status().message();
  EXPECT_TRUE(check->damaged.empty()) << check->damaged[0].file << " " << check->damaged[0].what;
  EXPECT_EQ(Cached().rows, none.rows);
}

INSTANTIATE_TEST_SUITE_P(All, TinyPrefixCacheTest,
                         testing::Values("lfm2_moe", "qwen3_next", "granitemoehybrid"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl::answers
