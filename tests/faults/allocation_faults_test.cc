// Allocations that fail while a tiny model is loaded and answers requests: each of them, once or
// permanently. The program exits by itself with its exit status and one line, and its output so far
// is complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "faults/faulty_program.h"
#include "long_form.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "slow.h"

namespace minisgl::faults {
namespace {

constexpr int kOutOfMemory = 75;
constexpr int kSomeFailed = 1;  // a row could not be made into a prompt; its error has the reason
// Faults of the short form: half of them spread over all allocations, half over the last twentieth,
// in which rows are answered and threads run. The long form takes every allocation.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kShortRuns = 20;
#else
constexpr int64_t kShortRuns = 100;
#endif

// The calls out of `total` that fail, one in each run. $MINISGL_FAULT selects one of them (7), or a
// range (1-9000) so that several processes share the long form.
std::vector<int64_t> Numbers(int64_t total) {
  std::vector<int64_t> numbers;
  if (const char* some = std::getenv("MINISGL_FAULT")) {
    char* rest = nullptr;
    const int64_t first = std::strtoll(some, &rest, 10);
    const int64_t last = *rest == '-' ? std::strtoll(rest + 1, nullptr, 10) : first;
    for (int64_t number = first; number <= std::min(last, total); ++number) {
      numbers.push_back(number);
    }
    return numbers;
  }
  const int64_t late = total - total / 20;
  for (int64_t number = 1; number <= total;) {
    numbers.push_back(number);
    const int64_t span = number < late ? total : total / 20;
    number += IsLongForm() ? 1 : std::max<int64_t>(1, span / (kShortRuns / 2));
  }
  return numbers;
}

// A model, some rows, and the command line that answers them.
class Job {
 public:
  explicit Job(bool with_tokenizer_json) {
    WriteTinyModel(folder_, with_tokenizer_json);
    const std::string rows[] = {
        R"({"id": "a", "prompt": "the fox", "max_tokens": 3})",
        with_tokenizer_json
            ? R"({"id": "b", "messages": [{"role": "user", "content": "hello"}], "stop": "zz"})"
            : R"({"id": "b", "prompt": "fox", "temperature": 1, "top_k": 5, "max_tokens": 3})",
        R"({"id": "c", "prompt_token_ids": [3, 4, 5], "max_tokens": 2, "n": 2, "logprobs": 1})"};
    for (const std::string& row : rows) folder_.Write("rows.jsonl", Rows() + row + "\n");
    reference_ = Run({});
    EXPECT_EQ(reference_.exit_code, 0) << reference_.err;
    rows_ = SortedRows();
    EXPECT_EQ(rows_.size(), 3u);
  }

  Outcome Run(const Fault& fault) {
    std::error_code ignored;
    std::filesystem::remove(folder_.Path("out.jsonl"), ignored);
    return RunWithFault({"run", "--model", folder_.path(), "--file", folder_.Path("rows.jsonl"),
                         "-o", folder_.Path("out.jsonl"), "--device", "cpu", "--threads", "2",
                         "--num-pages", "8", "--max-running-requests", "4", "--summary",
                         folder_.Path("summary.json"), "--force", "--quiet"},
                        fault);
  }

  // Checks that the output has whole lines only, each a row of the reference or an error row.
  void CheckOutput(const Outcome& outcome) {
    const std::string text = folder_.Read("out.jsonl");
    EXPECT_TRUE(text.empty() || text.ends_with('\n')) << "a torn row: " << Visible(text, 1000);
    for (const std::string& line : Lines(text)) {
      const auto row = ParseJson(line);
      ASSERT_TRUE(row.ok()) << Visible(line);
      if (row->Find("error") != nullptr) {
        EXPECT_NE(outcome.exit_code, 0) << Visible(line);
        EXPECT_NE(line.find("memory"), std::string::npos) << Visible(line);
      } else {
        EXPECT_TRUE(std::binary_search(rows_.begin(), rows_.end(), line)) << Visible(line);
      }
    }
    if (outcome.exit_code == 0) {
      EXPECT_EQ(SortedRows(), rows_);
    }
  }

  int64_t NumCalls(Call call) const { return reference_.calls[static_cast<size_t>(call)]; }
  const Outcome& reference() const { return reference_; }

 private:
  std::string Rows() const { return folder_.Read("rows.jsonl"); }
  static std::vector<std::string> Lines(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      lines.push_back(text.substr(begin, end - begin));
    }
    return lines;
  }
  std::vector<std::string> SortedRows() const {
    std::vector<std::string> rows = Lines(folder_.Read("out.jsonl"));
    std::sort(rows.begin(), rows.end());
    return rows;
  }

  Folder folder_;
  Outcome reference_;
  std::vector<std::string> rows_;
};

// One line for the user, at the end.
void ExpectSaid(const Outcome& outcome) {
  EXPECT_TRUE(outcome.err.starts_with("minisgl: ") && outcome.err.ends_with('\n')) << outcome.err;
  EXPECT_NE(outcome.err.find("memory"), std::string::npos) << outcome.err;
}

struct Case {
  bool with_tokenizer_json;
  bool persistent;
};

class AllocationFaultTest : public testing::TestWithParam<Case> {};

TEST_P(AllocationFaultTest, EveryOneEndsInOrder) {
  MarkSlow("a run for each of many allocations");
  Job job(GetParam().with_tokenizer_json);
  const int64_t total = job.NumCalls(Call::kAllocate);
  std::map<int, int64_t> codes;
  for (const int64_t number : Numbers(total)) {
    SCOPED_TRACE(testing::Message() << "allocation " << number << " of " << total);
    const Outcome outcome =
        job.Run({.call = Call::kAllocate, .number = number, .persistent = GetParam().persistent});
    ++codes[outcome.exit_code];
    EXPECT_FALSE(outcome.hung);
    EXPECT_TRUE(outcome.exit_code == kOutOfMemory || outcome.exit_code == kSomeFailed ||
                outcome.exit_code == 0)
        << "exit " << outcome.exit_code << ": " << outcome.err;
    if (outcome.exit_code == kOutOfMemory) ExpectSaid(outcome);
    job.CheckOutput(outcome);
  }
  for (const auto& [code, count] : codes) {
    RecordProperty("exit_" + std::to_string(code), static_cast<int>(count));
  }
  EXPECT_GT(codes[kOutOfMemory], 0);
}

INSTANTIATE_TEST_SUITE_P(All, AllocationFaultTest,
                         testing::Values(Case{false, false}, Case{false, true}, Case{true, false},
                                         Case{true, true}),
                         [](const auto& test) {
                           return std::string(test.param.with_tokenizer_json ? "TokenizerJson"
                                                                             : "TokenizerModel") +
                                  (test.param.persistent ? "ForGood" : "Once");
                         });

}  // namespace
}  // namespace minisgl::faults
