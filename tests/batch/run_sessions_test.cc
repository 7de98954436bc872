// Sessions of the program: the same rows under all settings, in shards, and after any number of
// kills.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"
#include "slow.h"

namespace minisgl::batch {
namespace {

using Arguments = std::vector<std::string>;

class RunSessionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
    input_ = folder_.Write("in.jsonl", Rows());
  }

  // Rows of twelve sessions and of none: messages, turns, text with stop strings, invalid rows.
  static std::string Rows() {
    std::mt19937 random(7);
    const auto word = [&random] {
      static constexpr const char* kWords[] = {"owl", "otter", "apple", "red", "Paris", "seven"};
      return std::string(kWords[random() % 6]);
    };
    const auto message = [&] {
      return fmt::format(R"({{"role": "user", "content": "{} {}?"}})", word(), word());
    };
    std::string rows;
    for (int i = 0; i < kRows; ++i) {
      const uint32_t session = random() % 14;
      std::string row = fmt::format(R"({{"id": "r{}", "max_tokens": {}, "temperature": {}, )", i,
                                    1 + random() % 9, random() % 2);
      if (session < 12) row += fmt::format(R"("session": "s{}", )", session);
      if (session < 4) {
        row += fmt::format(R"("append": true, "prompt": " {}"{})", word(),
                           random() % 3 == 0 ? R"(, "stop": [" a", "e"])" : "");
      } else if (random() % 5 == 0) {
        row +=
            fmt::format(R"("answer_all_turns": true, "messages": [{}, {}])", message(), message());
      } else {
        row += fmt::format(R"("messages": [{}])", message());
      }
      if (i % 61 == 60) row += R"(, "n": 0)";
      rows += row + "}\n";
    }
    return rows;
  }

  ProgramResult Run(const Arguments& more) const {
    Arguments arguments = {"run", "-m", DemoModel(), "--file", input_, "--quiet", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  // The rows of an output by index, without what depends on the cache.
  std::map<int64_t, std::string> RowsOf(const std::string& name) const {
    std::map<int64_t, std::string> rows;
    for (const std::string& line : Lines(folder_.Read(name))) {
      const Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      if (!row.ok()) continue;
      const int64_t index = row->Find("index")->as_int();
      EXPECT_FALSE(rows.contains(index)) << "twice: " << line;
      std::string text = line;
      constexpr std::string_view kCached = "\"cached_tokens\": ";
      for (size_t at = text.find(kCached); at != std::string::npos; at = text.find(kCached, at)) {
        text.erase(at, text.find(',', at) - at);
      }
      rows[index] = text;
    }
    return rows;
  }
  // The rows of a run with room for all, in the file "whole".
  std::map<int64_t, std::string> WholeRows() {
    static std::string made, journal;  // by the first case
    if (made.empty()) {
      EXPECT_EQ(Run({"-o", folder_.Path("whole"), "--num-pages", "1024"}).exit_code, 1);
      made = folder_.Read("whole");
      journal = folder_.Read("whole.meta");
    } else {
      folder_.Write("whole", made);
      folder_.Write("whole.meta", journal);
    }
    const auto rows = RowsOf("whole");
    EXPECT_EQ(rows.size(), static_cast<size_t>(kRows));
    size_t answered = 0;
    for (const auto& [index, row] : rows) answered += row.find("\"usage\"") != std::string::npos;
    EXPECT_GT(answered, static_cast<size_t>(kRows / 3));
    return rows;
  }

  static constexpr int kRows = 400;
  TemporaryFolder folder_;
  std::string input_;
};

TEST_F(RunSessionsTest, RowsAreTheSameUnderAllSettings) {
  MarkSlow("hundreds of rows, many times");
  const auto whole = WholeRows();
  const std::vector<Arguments> settings = {
      {"--num-pages", "160", "--max-running-requests", "2", "--ordered"},
      {"--num-pages", "512", "--cache", "naive"},
      {"--num-pages", "512", "--policy", "fcfs"},
      {"--num-pages", "512", "--max-step-tokens", "9", "--max-running-requests", "8"},
      {"--num-pages", "512", "--max-prefill-length", "16", "--schedule", "prefill-first"},
  };
  for (const Arguments& more : settings) {
    Arguments arguments = {"-o", folder_.Path("other"), "--force"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_EQ(RowsOf("other"), whole) << more[1] << more[2];
  }
}

TEST_F(RunSessionsTest, ShardsTogetherHaveTheSameRows) {
  const auto whole = WholeRows();
  std::map<int64_t, std::string> joined;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    Run({"-o", folder_.Path("part"), "--force", "--shard", shard, "--ordered"});
    auto part = RowsOf("part");
    const size_t before = joined.size(), more = part.size();
    joined.merge(part);
    EXPECT_EQ(joined.size(), before + more) << "a row is in two shards";
  }
  EXPECT_EQ(joined, whole);
}

TEST_F(RunSessionsTest, KilledRunsResumeWithoutLosingOrDoubling) {
  MarkSlow("a dozen runs");
  const auto whole = WholeRows();
  std::mt19937 random(3);
  for (const bool ordered : {false, true}) {
    std::filesystem::remove(folder_.Path("out"));
    Arguments arguments = {"run",       "-m",
                           DemoModel(), "--file",
                           input_,      "--quiet",
                           "--threads", "1",
                           "-o",        folder_.Path("out"),
                           "--resume",  "--grace",
                           "0.01",      "--max-running-requests",
                           "4"};
    if (ordered) arguments.push_back("--ordered");
    for (int kills = 0; kills < 8;) {
      Program program(arguments, {});
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 260));
      program.Signal(kills % 2 == 0 ? SIGKILL : SIGTERM);
      if (program.Wait().exit_code != 1) {
        ++kills;
      } else {  // it was done before the signal came
        std::filesystem::remove(folder_.Path("out"));
      }
    }
    const ProgramResult result = Program(arguments, {}).Wait();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_EQ(RowsOf("out"), whole);
  }
}

TEST_F(RunSessionsTest, RowsAfterOneThatIsAskedAgainAreAskedAgainToo) {
  const auto whole = WholeRows();
  // Removes the second answered row of a session.
  std::string text = folder_.Read("whole"), kept;
  int seen = 0;
  for (const std::string& line : Lines(text)) {
    const bool removed = line.find("\"token_ids\"") != std::string::npos && ++seen == 2;
    if (!removed) kept += line + "\n";
  }
  folder_.Write("whole", kept);
  EXPECT_EQ(Run({"-o", folder_.Path("whole"), "--resume"}).exit_code, 1);
  EXPECT_EQ(RowsOf("whole"), whole);
  // Without the ids of an answer there is nothing exact to go on from.
  const size_t at = text.find("\"token_ids\"");
  text.replace(at, 11, "\"token_idz\"");
  folder_.Write("whole", text.substr(0, text.size() / 2));
  const ProgramResult refused = Run({"-o", folder_.Path("whole"), "--resume"});
  EXPECT_EQ(refused.exit_code, 65) << refused.err;
  EXPECT_NE(refused.err.find("lacks the token_ids"), std::string::npos) << refused.err;
}

// An answer that is cut within its form counts as failed, but it is one: the session goes on.
TEST_F(RunSessionsTest, ACutAnswerIsGoneOnFrom) {
  const std::string input = folder_.Write(
      "rows",
      "{\"session\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"Tell me of "
      "Ada.\"}], "
      "\"max_tokens\": 4, \"guided_regex\": \"[a-z ]{40,80}\"}\n"
      "{\"session\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"And Bob?\"}], "
      "\"max_tokens\": 8}\n");
  const auto run = [&](const std::string& name) {
    return RunProgram({"run", "-m", DemoModel(), "-q", "--threads", "1", "--file", input, "-o",
                       folder_.Path(name), "--resume"});
  };
  EXPECT_EQ(run("whole").exit_code, 1);
  const std::vector<std::string> whole = Lines(folder_.Read("whole"));
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_NE(whole[0].find("incomplete_answer"), std::string::npos) << whole[0];
  EXPECT_EQ(whole[1].find("\"error\""), std::string::npos) << whole[1];
  folder_.Write("half", whole[0] + "\n");
  std::filesystem::copy_file(folder_.Path("whole.meta"), folder_.Path("half.meta"));
  EXPECT_EQ(run("half").exit_code, 1);
  const std::vector<std::string> half = Lines(folder_.Read("half"));
  ASSERT_EQ(half.size(), 2u);
  EXPECT_EQ(*ParseJson(half[1])->Find("text"), *ParseJson(whole[1])->Find("text"));
}

TEST_F(RunSessionsTest, CheckAndPlanKnowSessions) {
  const std::string input = folder_.Write(
      "rows",
      "{\"session\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
      "{\"session\": \"a\", \"prompt\": \"a\"}\n"
      "{\"session\": \"a\", \"append\": true, \"prompt\": \"a\"}\n");
  const ProgramResult check = RunProgram({"run", "-m", DemoModel(), "--file", input, "--check"});
  EXPECT_EQ(check.exit_code, 65);
  EXPECT_NE(check.err.find(":3: session_failed: the row on line 2"), std::string::npos)
      << check.err;
  const ProgramResult plan = RunProgram({"plan", "-m", DemoModel(), input});
  EXPECT_NE(plan.out.find("3, 2 bad"), std::string::npos) << plan.out;
}

}  // namespace
}  // namespace minisgl::batch
