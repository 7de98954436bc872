// Allocations and calls on files that fail while a compressed table is answered as a table, with
// events of the prefix cache: the program ends in order, and the table is whole or absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "faults/faulty_program.h"
#include "long_form.h"
#include "minisgl/base/file_io.h"
#include "slow.h"

namespace minisgl::faults {
namespace {

namespace fs = std::filesystem;

// gzip and zstd of "id,country\n1,Peru\n2,Spain\n".
constexpr unsigned char kGzip[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x4c, 0xd1, 0x49, 0xce, 0x2f,
    0xcd, 0x2b, 0x29, 0xaa, 0xe4, 0x32, 0xd4, 0x09, 0x48, 0x2d, 0x2a, 0xe5, 0x32, 0xd2, 0x09, 0x2e,
    0x48, 0xcc, 0xcc, 0xe3, 0x02, 0x00, 0x4d, 0x83, 0x30, 0x58, 0x1a, 0x00, 0x00, 0x00};
constexpr unsigned char kZstandard[] = {0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0xd1, 0x00, 0x00, 0x69,
                                        0x64, 0x2c, 0x63, 0x6f, 0x75, 0x6e, 0x74, 0x72, 0x79, 0x0a,
                                        0x31, 0x2c, 0x50, 0x65, 0x72, 0x75, 0x0a, 0x32, 0x2c, 0x53,
                                        0x70, 0x61, 0x69, 0x6e, 0x0a, 0x5e, 0xa1, 0x9c, 0xc7};

template <size_t kSize>
std::string Bytes(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

// Parameter: the input is in Zstandard, not in gzip.
class TableFaultTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    WriteTinyModel(folder_, /*with_tokenizer_json=*/false);
    folder_.Write("rows.csv", GetParam() ? Bytes(kZstandard) : Bytes(kGzip));
    const Outcome reference = Run({});
    if (reference.exit_code == 69) GTEST_SKIP() << reference.err;
    ASSERT_EQ(reference.exit_code, 0) << reference.err;
    table_ = folder_.Read("out.csv");
    ASSERT_TRUE(table_.starts_with("id,country,text,error\n1,Peru,")) << table_;
    calls_.assign(std::begin(reference.calls), std::end(reference.calls));
  }
  Outcome Run(const Fault& fault, bool resumes = false) {
    std::error_code ignored;
    fs::remove(folder_.Path("out.csv"), ignored);
    return RunWithFault({"run",
                         "--model",
                         folder_.path(),
                         "--file",
                         folder_.Path("rows.csv"),
                         "--raw",
                         "--template",
                         "the {{ country }}",
                         "-o",
                         folder_.Path("out.csv"),
                         "--max-tokens",
                         "3",
                         "--page-size",
                         "1",
                         "--device",
                         "cpu",
                         "--threads",
                         "1",
                         "--num-pages",
                         "64",
                         "--quiet",
                         "--events",
                         folder_.Path("events"),
                         resumes ? "--resume" : "--force"},
                        fault);
  }
  // The table is whole, or there is none, and another run makes it.
  void CheckTable(const Outcome& outcome) {
    EXPECT_FALSE(outcome.hung);
    const std::string written = folder_.Read("out.csv");
    if (outcome.exit_code == 0) {
      EXPECT_EQ(written, table_);
    } else if (outcome.exit_code == 1) {  // a row failed, for the same reason
      EXPECT_NE(written.find("memory"), std::string::npos) << written << outcome.err;
    } else {
      // Whole if the events are written, or fail, after it.
      EXPECT_TRUE(written.empty() || written == table_) << written << outcome.exit_code;
      EXPECT_TRUE(outcome.err.starts_with("minisgl: ")) << outcome.err;
    }
    EXPECT_FALSE(fs::exists(FileReplacement::PartOf(folder_.Path("out.csv"))));
  }

  Folder folder_;
  std::string table_;
  std::vector<int64_t> calls_;
};

TEST_P(TableFaultTest, WhateverAllocationFailsTheTableIsWholeOrAbsent) {
  MarkSlow("a run for each of many allocations");
  const int64_t total = calls_[static_cast<size_t>(Call::kAllocate)];
  const int64_t step = IsLongForm() ? 1 : std::max<int64_t>(total / 40, 1);
  int num_failed = 0;
  const auto fails = [&](int64_t number) {
    SCOPED_TRACE(testing::Message() << "allocation " << number << " of " << total);
    const Outcome outcome = Run({.call = Call::kAllocate, .number = number});
    CheckTable(outcome);
    num_failed += outcome.exit_code == 0 ? 0 : 1;
    EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1 || outcome.exit_code == 75)
        << outcome.exit_code << " " << outcome.err;
    return outcome.exit_code != 0;
  };
  for (int64_t number = 1; number < total; number += step) fails(number);
  // Each of the last, which put the table in its place. Runs after the first make more than it did:
  // go on until there are none.
  constexpr int kNone = 4, kMost = 400;
  int num_sound = 0;
  for (int64_t number = total - 16; num_sound < kNone && number < total + kMost; ++number) {
    num_sound = fails(number) ? 0 : num_sound + 1;
  }
  EXPECT_EQ(num_sound, kNone) << "the end was not reached";
  EXPECT_GT(num_failed, 10);
  EXPECT_EQ(Run({}).exit_code, 0);
  EXPECT_EQ(folder_.Read("out.csv"), table_);
}

TEST_P(TableFaultTest, WhateverReadFailsTheTableIsWholeOrAbsent) {
  MarkSlow("a run for each read");
  const int64_t total = calls_[static_cast<size_t>(Call::kRead)];
  int num_failed = 0;
  for (int64_t number = 1; number <= total; ++number) {
    SCOPED_TRACE(testing::Message() << "read " << number << " of " << total);
    const Outcome outcome = Run({.call = Call::kRead, .number = number, .error = EIO});
    CheckTable(outcome);
    num_failed += outcome.exit_code == 0 ? 0 : 1;
    const Outcome resumed = Run({}, /*resumes=*/true);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(folder_.Read("out.csv"), table_);
  }
  EXPECT_GT(num_failed, 3);
  // Every read returns one byte.
  EXPECT_EQ(Run({.call = Call::kRead, .number = 1, .persistent = true, .error = 0}).exit_code, 0);
  EXPECT_EQ(folder_.Read("out.csv"), table_);
}

INSTANTIATE_TEST_SUITE_P(Formats, TableFaultTest, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Zstandard" : "Gzip"; });

}  // namespace
}  // namespace minisgl::faults
