// `minisgl run --prefix-cache`: the same answers from a cold, a warm, a half-evicted and a damaged
// cache, from killed runs, two at once and on a full disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "long_form.h"
#include "minisgl/base/random.h"
#include "minisgl/store/cache_tools.h"
#include "program/run_fixture.h"
#include "slow.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

class RunPrefixCacheTest : public RunProgramTest {
 protected:
  // The rows of a run, and how many of their prompt tokens came from a cache.
  struct Answers {
    std::string rows;  // without what depends on the cache
    int64_t cached_tokens = 0;
    std::string err;
  };

  static std::string Prompts(const std::string& name) {
    return MINISGL_SOURCE_DIR "/prompts/" + name + ".jsonl";
  }
  std::string Folder() const { return folder_.Path("cache"); }
  Arguments CachedRun(const std::string& name, const Arguments& more = {}) const {
    Arguments arguments = {"--file", Prompts(name), "--prefix-cache", Folder()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Answers AnswersOf(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Answers answers;
    answers.err = result.err;
    for (const std::string& line : Lines(result.out)) {
      const std::string field = "\"cached_tokens\":";
      const size_t at = line.find(field);
      if (at == std::string::npos) {
        ADD_FAILURE() << line;
        continue;
      }
      const size_t begin = at + field.size(), end = line.find_first_of(",}", begin);
      answers.cached_tokens += std::stoll(line.substr(begin, end - begin));
      answers.rows += line.substr(0, begin) + line.substr(end) + "\n";
    }
    return answers;
  }
  static Answers Uncached(const std::string& name) {
    return AnswersOf(RunModel({"--file", Prompts(name)}));
  }
  Answers Cached(const std::string& name, const Arguments& more = {}) const {
    return AnswersOf(RunModel(CachedRun(name, more)));
  }
  std::vector<std::string> Blocks() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(Folder())) {
      if (entry.path().extension() == ".kv") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  // Changes a byte at a random place of every `step`th block.
  void Damage(size_t step, uint64_t seed) const {
    const std::vector<std::string> blocks = Blocks();
    for (size_t i = 0; i < blocks.size(); i += step) {
      const RandomBits bits = PhiloxBits(seed, i);
      std::fstream file(blocks[i], std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(bits.word[0] % fs::file_size(blocks[i]));
      char byte = 0;
      file.seekg(at).read(&byte, 1);
      byte = static_cast<char>(byte ^ (1 << (bits.word[1] % 8)));
      file.seekp(at).write(&byte, 1);
    }
  }
  // Says no rows, of which there are many, if they differ.
  static void ExpectRows(const Answers& answers, const Answers& expected, const char* what) {
    EXPECT_TRUE(answers.rows == expected.rows) << what << ": other rows";
  }
  void ExpectNoDamage() const {
    const auto check = VerifyPrefixCache(Folder(), false);
    ASSERT_TRUE(check.ok()) << check.status().message();
    EXPECT_TRUE(check->damaged.empty()) << check->damaged[0].file << " " << check->damaged[0].what;
  }
};

TEST_F(RunPrefixCacheTest, TheNextRunBeginsWithThePrefixes) {
  const Answers none = Uncached("notes"), cold = Cached("notes"), warm = Cached("notes");
  ExpectRows(cold, none, "");
  ExpectRows(warm, none, "");
  // The notes of 424 tokens, which the cold run computed once.
  EXPECT_GE(warm.cached_tokens, cold.cached_tokens + 6 * 64);
  struct stat info {};
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

class PromptFileTest : public RunPrefixCacheTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(PromptFileTest, RowsAreTheSameWhateverIsInTheCache) {
  MarkSlow("many runs of a prompt file");
  const std::string name = GetParam();
  const Answers none = Uncached(name);
  ExpectRows(Cached(name), none, "cold");
  const Answers warm = Cached(name);
  ExpectRows(warm, none, "warm");
  const bool is_loaded = warm.cached_tokens > none.cached_tokens;
  // The prompts of stories and mixed are shorter than a block, mixed even with the answers.
  EXPECT_EQ(is_loaded, name != "stories" && name != "mixed");
  const std::vector<std::string> blocks = Blocks();
  EXPECT_EQ(blocks.empty(), name == "mixed");
  for (size_t i = 0; i < blocks.size(); i += 2) fs::remove(blocks[i]);
  ExpectRows(Cached(name), none, "half-evicted");
  EXPECT_EQ(Blocks(), blocks) << "what was missing is saved again";
  Arguments small_pages = {"run", "-m",          DemoModel(),  "--threads",
                           "2",   "--num-pages", "2048",       "--page-size",
                           "4",   "--file",      Prompts(name)};
  const Answers uncached = AnswersOf(RunProgram(small_pages));
  small_pages.insert(small_pages.end(), {"--prefix-cache", Folder()});
  const Answers other_pages = AnswersOf(RunProgram(small_pages));
  ExpectRows(other_pages, none, "another page size");
  // In conversations small pages share so much that less than a block is left to load.
  EXPECT_EQ(other_pages.cached_tokens > uncached.cached_tokens, name == "notes");
  for (size_t step = 3; step > 0; --step) {
    Damage(step, step);
    const Answers damaged = Cached(name);
    ExpectRows(damaged, none, "damaged");
    const std::string warning = ": a block was damaged; it was removed";
    const size_t at = damaged.err.find(warning);
    EXPECT_EQ(damaged.err.find(warning, at + 1), std::string::npos) << "more than one warning";
    if (step == 1) {  // all blocks are damaged
      EXPECT_EQ(at != std::string::npos, is_loaded) << damaged.err;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PromptFileTest,
                         testing::Values("notes", "conversations", "mixed", "stories"));

TEST_F(RunPrefixCacheTest, AFolderThatOthersCanReadIsRefused) {
  fs::create_directory(Folder());
  ASSERT_EQ(chmod(Folder().c_str(), 0755), 0);
  ExpectFails(
      RunModel(CachedRun("notes")), 65,
      "--prefix-cache: " + Folder() +
          ": gives other users access to what prompts said (found mode 0755); chmod 700 it");
}

TEST_F(RunPrefixCacheTest, TwoRunsShareAFolder) {
  const Answers none = Uncached("notes");
  Program first(Run(CachedRun("notes")), {}), second(Run(CachedRun("notes")), {});
  ExpectRows(AnswersOf(first.Wait()), none, "");
  ExpectRows(AnswersOf(second.Wait()), none, "");
  ExpectNoDamage();
}

// Less room than one prompt needs: each run removes blocks that the other reads.
TEST_F(RunPrefixCacheTest, TwoRunsRemoveEachOthersBlocks) {
  const Answers notes = Uncached("notes"), stories = Uncached("stories");
  const Arguments small = {"--prefix-cache-size", "4MiB"};
  for (int round = 0; round < 2; ++round) {
    Program first(Run(CachedRun("notes", small)), {}), second(Run(CachedRun("stories", small)), {});
    ExpectRows(AnswersOf(first.Wait()), notes, "");
    ExpectRows(AnswersOf(second.Wait()), stories, "");
  }
  ExpectNoDamage();
}

// A limit of file sizes below a block's size stands for a full disk.
TEST_F(RunPrefixCacheTest, AFullDiskEndsTheSavingAlone) {
  const Answers none = Uncached("notes");
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {100'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result = RunModel(CachedRun("notes"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  ExpectRows(AnswersOf(result), none, "full");
  const std::string warning = "no more blocks are saved (File too large)";
  const size_t at = result.err.find(warning);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(warning, at + 1), std::string::npos) << "more than one warning";
  for (const auto& entry : fs::recursive_directory_iterator(Folder())) {
    EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
  }
  EXPECT_TRUE(Blocks().empty());
  ExpectRows(Cached("notes"), none, "after it");
  EXPECT_FALSE(Blocks().empty());
}

// With the same folder, yet each with its own blocks: other instruction sets give other bits.
TEST_F(RunPrefixCacheTest, InstructionSetsDoNotShareBlocks) {
  MarkSlow("six runs of a prompt file");
  std::map<std::string, Answers> uncached;
  for (int round = 0; round < 2; ++round) {
    for (const char* target : {"sse4", "avx2"}) {
      const ProgramResult result = RunModel(CachedRun("notes", {"--cpu-target", target}));
      if (result.exit_code == 64) GTEST_SKIP() << result.err;  // this machine has fewer sets
      if (round == 0) {
        uncached[target] =
            AnswersOf(RunModel({"--file", Prompts("notes"), "--cpu-target", target}));
      }
      ExpectRows(AnswersOf(result), uncached[target], target);
    }
  }
  const auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].blocks, (*models)[1].blocks);
  for (const char* target : {"sse4", "avx2"}) {
    const std::string name = fmt::format("wren, bf16, cpu ({})", target);
    EXPECT_TRUE(std::any_of(models->begin(), models->end(), [&](const CachedModel& model) {
      return model.model_name == name;
    })) << (*models)[0].model_name;
  }
}

TEST_F(RunPrefixCacheTest, ASignalEndsTheSavingWithinTheGracePeriod) {
  Program run(Run(CachedRun("mixed", {"--grace", "1"})), {});
  run.WaitForOutput();
  run.Signal(SIGTERM);
  const ProgramResult result = run.Wait();
  EXPECT_TRUE(result.exit_code == 143 || result.exit_code == 0) << result.err;
  ExpectNoDamage();
  ExpectRows(Cached("mixed"), Uncached("mixed"), "after a signal");
}

// 200 kills in the long form.
TEST_F(RunPrefixCacheTest, KilledRunsLeaveNoBlockThatIsWrong) {
  MarkSlow("many runs are killed");
  const Answers none = Uncached("stories");
  const int kills = ShortOrLong(12, 200);
  for (int i = 0; i < kills; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    Program run(Run(CachedRun(i % 3 == 0 ? "notes" : "stories")), {});
    std::this_thread::sleep_for(std::chrono::milliseconds(PhiloxBits(3, seed).word[0] % 900));
    run.Signal(SIGKILL);
    run.Wait();
    // A third of the next runs have to save the removed blocks again.
    if (i % 3 == 1 && fs::exists(Folder())) {
      for (const std::string& block : Blocks()) {
        if (block[block.size() - 5] < '8') fs::remove(block);
      }
    }
  }
  ExpectNoDamage();
  ExpectRows(Cached("stories"), none, "");
}

}  // namespace
}  // namespace minisgl
