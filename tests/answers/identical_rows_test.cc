// Promise 1 through the whole program: whatever the schedule, the rows are the same, byte for byte.
//
// The short form covers every value of every option, and each pair of neighbours, over a part of
// the prompts; with MINISGL_SEEDS set (the long form) it is the full cross over all prompt files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "answers/run_program.h"

namespace minisgl::answers {
namespace {

struct Setting {
  int page_size, max_prefill, max_running, threads;
  const char* cache;
  bool overlap;
  const char *schedule, *admission, *policy;
  int num_pages;   // 0: as planned
  int max_drafts;  // 0: none

  std::string Name() const { return fmt::format("{}", fmt::join(Args(), " ")); }
  std::vector<std::string> Args() const {
    std::vector<std::string> args{"--page-size",
                                  std::to_string(page_size),
                                  "--max-prefill-length",
                                  std::to_string(max_prefill),
                                  "--max-running-requests",
                                  std::to_string(max_running),
                                  "--threads",
                                  std::to_string(threads),
                                  "--cache",
                                  cache};
    if (!overlap) args.push_back("--disable-overlap");
    for (const auto& [name, value] :
         {std::pair("--schedule", schedule), std::pair("--admission", admission),
          std::pair("--policy", policy)}) {
      args.insert(args.end(), {name, value});
    }
    if (num_pages > 0) args.insert(args.end(), {"--num-pages", std::to_string(num_pages)});
    if (max_drafts > 0)
      args.insert(args.end(), {"--speculate", fmt::format("ngram:{}", max_drafts)});
    return args;
  }
};

bool IsLong() { return std::getenv("MINISGL_SEEDS") != nullptr; }

// The smallest pool that holds one request of the prompts used: 640 tokens.
int SmallestPool(int page_size) { return 640 / page_size; }

std::vector<Setting> Settings() {
  if (!IsLong()) {
    return {{1, 32, 64, 2, "radix", true, "mixed", "optimistic", "priority", 0, 0},
            {4, 8192, 1, 1, "radix", false, "prefill-first", "reserve", "fcfs", 0, 8},
            {16, 32, 7, 1, "naive", true, "mixed", "reserve", "priority", 0, 0},
            {1, 8192, 64, 2, "naive", false, "prefill-first", "optimistic", "fcfs", 1000, 3},
            {4, 32, 64, 1, "naive", true, "mixed", "optimistic", "fcfs", SmallestPool(4), 0},
            {16, 8192, 64, 2, "radix", true, "prefill-first", "reserve", "priority", 0, 16},
            {1, 32, 7, 1, "radix", false, "mixed", "reserve", "fcfs", SmallestPool(1), 5},
            {64, 8192, 3, 2, "radix", true, "mixed", "optimistic", "priority", SmallestPool(64), 1},
            {16, 512, 64, 2, "radix", true, "prefill-first", "optimistic", "priority",
             SmallestPool(16), 4}};
  }
  std::vector<Setting> settings;
  for (int page_size : {1, 4, 16}) {
    for (int max_prefill : {32, 8192}) {
      for (int max_running : {1, 7, 64}) {
        for (int threads : {1, 2}) {
          for (const char* cache : {"radix", "naive"}) {
            for (bool overlap : {true, false}) {
              // Policies and pools vary along, so that each meets each of the others.
              const size_t turn = settings.size();
              settings.push_back({page_size, max_prefill, max_running, threads, cache, overlap,
                                  turn % 2 == 0 ? "mixed" : "prefill-first",
                                  turn / 2 % 3 != 0 ? "optimistic" : "reserve",
                                  turn / 6 % 2 == 0 ? "priority" : "fcfs",
                                  turn % 5 == 0 ? SmallestPool(page_size) : 0,
                                  turn % 7 < 3 ? 0 : static_cast<int>(turn % 7) - 2});
            }
          }
        }
      }
    }
  }
  return settings;
}

// Every `stride`-th line of a prompt file, with `extra` put at the start of each row.
std::string Sample(const std::string& name, int stride, const std::string& extra) {
  std::ifstream in(PromptFile(name));
  const std::string path = ::testing::TempDir() + "minisgl_sample_" + name;
  std::ofstream out(path);
  std::string line;
  for (int number = 0; std::getline(in, line); ++number) {
    if (number % stride == 0) out << "{" << extra << line.substr(1) << "\n";
  }
  return path;
}

void ExpectIdenticalRows(const std::string& file) {
  std::vector<std::string> expected;
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(file + " " + setting.Name());
    std::vector<std::string> args{"run", "-m", DemoModel(), "--file", file, "--quiet"};
    const auto more = setting.Args();
    args.insert(args.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(args);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const auto rows = Comparable(run.Rows());
    if (expected.empty()) expected = rows;
    ASSERT_EQ(rows, expected);
  }
  ASSERT_FALSE(expected.empty());
}

TEST(IdenticalRowsTest, Notes) { ExpectIdenticalRows(Sample("notes.jsonl", IsLong() ? 1 : 6, "")); }
TEST(IdenticalRowsTest, Mixed) { ExpectIdenticalRows(Sample("mixed.jsonl", IsLong() ? 1 : 8, "")); }
TEST(IdenticalRowsTest, Conversations) {
  ExpectIdenticalRows(Sample("conversations.jsonl", IsLong() ? 1 : 4, ""));
}

// Drafts are right often enough to save steps where an answer repeats its prompt, greedy and
// sampled: else identical rows would show nothing about them.
TEST(IdenticalRowsTest, DraftsAreAcceptedAndSaveSteps) {
  const std::string file = Sample("notes.jsonl", 10, "");
  const std::string summary_file = ::testing::TempDir() + "minisgl_drafts.json";
  std::vector<int64_t> steps;
  for (const std::string speculate : {"none", "ngram:6"}) {
    const ProgramRun run =
        RunProgram({"run", "-m", DemoModel(), "--file", file, "--quiet", "--speculate", speculate,
                    "--max-running-requests", "1", "-n", "120", "--ignore-eos", "--summary",
                    summary_file, "--force"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    std::ifstream in(summary_file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const Json summary = ParseJson(text).value();
    const Json& scheduler = *summary.Find("scheduler");
    steps.push_back(scheduler.Find("steps")->as_int());
    const int64_t accepted = scheduler.Find("accepted_drafts")->as_int();
    EXPECT_EQ(accepted > 0, speculate != "none");
  }
  EXPECT_LT(steps[1], steps[0]);
}

// Sampled answers too, with everything that sampling can do, and the log-probabilities of the raw
// logits to the last bit.
TEST(IdenticalRowsTest, SampledStoriesWithLogprobs) {
  std::ifstream in(PromptFile("stories.jsonl"));
  const std::string path = ::testing::TempDir() + "minisgl_sampled.jsonl";
  std::ofstream out(path);
  std::string line;
  for (int number = 0; std::getline(in, line) && number < (IsLong() ? 24 : 6); ++number) {
    auto row = ParseJson(line).value();
    row.Set("max_tokens", 40).Set("temperature", 0.9).Set("n", 1 + number % 3).Set("top_p", 0.95);
    row.Set("logprobs", true).Set("top_logprobs", 3).Set("return_token_ids", true);
    if (number % 2 == 0) row.Set("repetition_penalty", 1.1).Set("frequency_penalty", 0.2);
    if (number % 3 == 0) row.Set("top_k", 20).Set("min_p", 0.02).Set("min_tokens", 12);
    out << row.Dump() << "\n";
  }
  out.close();
  ExpectIdenticalRows(path);
}

}  // namespace
}  // namespace minisgl::answers
