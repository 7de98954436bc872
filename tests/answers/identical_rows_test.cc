// Promise 1 through the whole program: rows are the same byte for byte, whatever the schedule.
//
// - Each prompt file runs under settings that cover every value of every option.
// - A sample of all files runs under the full cross of schedule, admission, policy, page size,
//   cache, overlap, pool and drafts.
//
// The short form runs a part of each. With MINISGL_LONG set (the long form) both run whole.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <utility>

#include "answers/run_program.h"
#include "answers/schedule_settings.h"
#include "long_form.h"
#include "slow.h"

namespace minisgl::answers {
namespace {

// All 512 of them. Settings that are not crossed vary as well.
std::vector<Setting> Cross() {
  constexpr int kPrefills[] = {32, 512, 8192}, kRunning[] = {1, 3, 7, 64};
  std::vector<Setting> settings;
  for (int bits = 0; bits < 512; ++bits) {
    const int page_size = std::array{1, 4, 16, 64}[static_cast<size_t>(bits >> 7)];
    settings.push_back({page_size, kPrefills[bits % 3], kRunning[bits / 3 % 4], 1 + bits / 5 % 2,
                        (bits & 1) != 0 ? "radix" : "naive", (bits & 2) != 0,
                        (bits & 4) != 0 ? "mixed" : "prefill-first",
                        (bits & 8) != 0 ? "optimistic" : "reserve",
                        (bits & 16) != 0 ? "priority" : "fcfs",
                        (bits & 32) != 0 ? SmallestPool(page_size) : 0, (bits & 64) != 0 ? 4 : 0});
  }
  return settings;
}

// Every `stride`-th line of a prompt file, with `extra` inserted at the start of each row.
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

TEST(IdenticalRowsTest, Notes) {
  MarkSlow("long prompts under several schedules");
  ExpectIdenticalRows(DemoModel(), Sample("notes.jsonl", ShortOrLong(6, 1), ""));
}
TEST(IdenticalRowsTest, Mixed) {
  ExpectIdenticalRows(DemoModel(), Sample("mixed.jsonl", ShortOrLong(8, 1), ""));
}
TEST(IdenticalRowsTest, Conversations) {
  ExpectIdenticalRows(DemoModel(), Sample("conversations.jsonl", ShortOrLong(4, 1), ""));
}

// Rows that limit the tokens of their answers, with and without a grammar, sampled and greedy, and
// rows that continue a message.
TEST(IdenticalRowsTest, LimitedTokens) {
  MarkSlow("prompts under several schedules");
  std::string ids = "2";
  for (int id = 0; id < 2000; id += 3) ids += ", " + std::to_string(id);
  const std::string fields[] = {
      R"("bad_words": ["the", "a", "was happy"], "temperature": 0.9, "n": 2)",
      R"("bad_words": ["the", "One day"], "temperature": 0)",
      R"("bad_words": ["a", "b c"], "guided_regex": "[A-Za-z ]{1,40}")",
      R"("allowed_token_ids": [)" + ids + R"(], "temperature": 1)",
      R"("allowed_token_ids": [)" + ids + R"(], "guided_regex": "[a-z ]{1,40}")",
      R"("continue_final_message": true, "bad_words": ["the"])"};
  const std::string path = ::testing::TempDir() + "minisgl_limited.jsonl";
  std::ofstream out(path);
  for (int i = 0; i < ShortOrLong(12, 60); ++i) {
    out << R"({"max_tokens": 40, "messages": [{"role": "user", "content": "Tell me a story about )"
        << i % 7 << R"( birds."}, {"role": "assistant", "content": "Once upon"}], )"
        << fields[i % 6] << "}\n";
  }
  out.close();
  ExpectIdenticalRows(DemoModel(), path);
}

// Drafts are accepted often enough to save steps if an answer repeats its prompt, greedy or
// sampled. Otherwise identical rows would prove nothing about drafts.
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

// Sampled rows of stories.jsonl that use every sampling parameter.
std::vector<std::string> SampledStories(int count) {
  std::ifstream in(PromptFile("stories.jsonl"));
  std::vector<std::string> rows;
  std::string line;
  for (int number = 0; std::getline(in, line) && number < count; ++number) {
    auto row = ParseJson(line).value();
    row.Set("max_tokens", 40).Set("temperature", 0.9).Set("n", 1 + number % 3).Set("top_p", 0.95);
    row.Set("logprobs", true).Set("top_logprobs", 3).Set("return_token_ids", true);
    if (number % 2 == 0) row.Set("repetition_penalty", 1.1).Set("frequency_penalty", 0.2);
    if (number % 3 == 0) row.Set("top_k", 20).Set("min_p", 0.02).Set("min_tokens", 12);
    rows.push_back(row.Dump());
  }
  return rows;
}

// Sampled answers are the same too, and so are the log-probabilities, to the last bit.
TEST(IdenticalRowsTest, SampledStoriesWithLogprobs) {
  MarkSlow("long answers under several schedules");
  const std::string path = ::testing::TempDir() + "minisgl_sampled.jsonl";
  std::ofstream out(path);
  for (const std::string& row : SampledStories(ShortOrLong(6, 24))) out << row << "\n";
  out.close();
  ExpectIdenticalRows(DemoModel(), path);
}

TEST(IdenticalRowsTest, ASampleOfAllFilesUnderTheCrossOfAllSchedules) {
  MarkSlow("a product of schedules");
  const std::string path = ::testing::TempDir() + "minisgl_all.jsonl";
  std::ofstream out(path);
  for (const auto& [name, stride] : {std::pair("notes.jsonl", 15), std::pair("mixed.jsonl", 25),
                                     std::pair("conversations.jsonl", 8)}) {
    out << std::ifstream(Sample(name, stride, "")).rdbuf();
  }
  for (const std::string& row : SampledStories(3)) out << row << "\n";
  out.close();
  const std::vector<Setting> all = Cross();
  std::vector<Setting> settings;
  for (size_t i = 0; i < all.size(); i += ShortOrLong<size_t>(37, 1)) settings.push_back(all[i]);
  ExpectIdenticalRows(DemoModel(), path, settings);
}

}  // namespace
}  // namespace minisgl::answers
