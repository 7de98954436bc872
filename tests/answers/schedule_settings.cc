#include "answers/schedule_settings.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <utility>

#include "answers/run_program.h"

namespace minisgl::answers {

std::string Setting::Name() const { return fmt::format("{}", fmt::join(Args(), " ")); }

std::vector<std::string> Setting::Args() const {
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
  if (max_drafts > 0) args.insert(args.end(), {"--speculate", fmt::format("ngram:{}", max_drafts)});
  if (num_ranks > 1) args.insert(args.end(), {"--tensor-parallel", std::to_string(num_ranks)});
  return args;
}

int SmallestPool(int page_size) { return 640 / page_size; }

std::vector<Setting> Settings() {
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

void ExpectIdenticalRows(const std::string& model, const std::string& file,
                         const std::vector<Setting>& settings) {
  std::vector<std::string> expected;
  for (const Setting& setting : settings) {
    SCOPED_TRACE(file + " " + setting.Name());
    std::vector<std::string> args{"run", "-m", model, "--file", file, "--quiet"};
    const auto more = setting.Args();
    args.insert(args.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(args);
    ASSERT_TRUE(IsAnswered(run)) << run.exit_code << run.err;
    const auto rows = Comparable(run.Rows());
    if (expected.empty()) expected = rows;
    ASSERT_EQ(rows, expected);
  }
  ASSERT_FALSE(expected.empty());
}

}  // namespace minisgl::answers
