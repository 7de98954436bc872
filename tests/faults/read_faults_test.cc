// Failures of every call that opens, examines, maps or reads a file while a model is loaded and
// answers a row; files that change while the program reads them; and the list of files it opens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "faults/faulty_program.h"
#include "long_form.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "slow.h"

namespace minisgl::faults {
namespace {

namespace fs = std::filesystem;

constexpr int kBadInput = 65;
constexpr int kNoInput = 66;
constexpr int kCannotCreate = 73;
constexpr int kIoError = 74;

class ReadFaultTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    WriteTinyModel(folder_, GetParam());
    folder_.Write("rows.jsonl", R"({"prompt": "the fox", "max_tokens": 3})"
                                "\n");
  }

  Outcome Run(const Fault& fault) {
    return RunWithFault(
        {"run", "--model", folder_.path(), "--file", folder_.Path("rows.jsonl"), "--raw",
         "--device", "cpu", "--threads", "1", "--num-pages", "8", "--quiet"},
        fault);
  }

  Folder folder_;
};

TEST_P(ReadFaultTest, AFailedCallEndsInOrderNamingTheFile) {
  MarkSlow("a run for each call");
  const Outcome reference = Run({});
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  const struct {
    Call call;
    int error;
  } kFaults[] = {{Call::kOpen, EMFILE}, {Call::kOpen, EACCES}, {Call::kFstat, EIO},
                 {Call::kMap, ENOMEM},  {Call::kRead, EIO},    {Call::kRead, EISDIR}};
  int num_failed = 0;
  for (const auto& [call, error] : kFaults) {
    for (int64_t number = 1; number <= reference.calls[static_cast<size_t>(call)]; ++number) {
      SCOPED_TRACE(testing::Message() << "call " << static_cast<int>(call) << " number " << number
                                      << ", errno " << error);
      const Outcome outcome = Run({.call = call, .number = number, .error = error});
      EXPECT_FALSE(outcome.hung);
      if (outcome.exit_code == 0) {  // a query about the system, which has a default
        EXPECT_EQ(outcome.out, reference.out);
        continue;
      }
      ++num_failed;
      EXPECT_TRUE(outcome.exit_code == kNoInput || outcome.exit_code == kIoError ||
                  outcome.exit_code == kCannotCreate)
          << "exit " << outcome.exit_code << ": " << outcome.err;
      EXPECT_NE(
          outcome.err.find(outcome.exit_code == kCannotCreate ? "standard output" : folder_.path()),
          std::string::npos)
          << outcome.err;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
  }
  EXPECT_GE(num_failed, 10);
}

TEST_P(ReadFaultTest, InterruptedAndShortReadsChangeNothing) {
  MarkSlow("many runs");
  const Outcome reference = Run({});
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  const int64_t reads = reference.calls[static_cast<size_t>(Call::kRead)];
  ASSERT_GT(reads, 3);
  for (int64_t number = 1; number <= reads; ++number) {
    for (const int error : {EINTR, 0}) {
      const Outcome outcome = Run({.call = Call::kRead, .number = number, .error = error});
      EXPECT_EQ(outcome.exit_code, 0) << number << " " << error << ": " << outcome.err;
      EXPECT_EQ(outcome.out, reference.out) << number << " " << error;
    }
  }
  // Every read, from the first on, returns one byte.
  const Outcome slow = Run({.call = Call::kRead, .number = 1, .persistent = true, .error = 0});
  EXPECT_EQ(slow.exit_code, 0) << slow.err;
  EXPECT_EQ(slow.out, reference.out);
}

TEST_P(ReadFaultTest, OnlyFilesOfTheModelAndTheInputAreOpened) {
  folder_.Write("model.safetensors.index.json", "not looked at beside model.safetensors");
  const Outcome outcome = Run({});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_GE(outcome.opened.size(), 4u);
  for (const std::string& path : outcome.opened) {
    EXPECT_EQ(fs::path(path).parent_path(), folder_.path()) << path;
    EXPECT_FALSE(path.ends_with("index.json")) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReadFaultTest, testing::Values(false, true), [](const auto& test) {
  return test.param ? "TokenizerJson" : "TokenizerModel";
});

// A shard whose path leaves the directory is refused before anything is opened.
TEST(OpenedFilesTest, AShardOutsideOfTheDirectoryIsNotOpened) {
  const Folder outer;
  fs::create_directory(outer.Path("model"));
  outer.Write("outside.safetensors", "x");
  for (const std::string& shard :
       {std::string("../outside.safetensors"), outer.Path("outside.safetensors"),
        std::string("./outside.safetensors"), std::string("a/../../outside.safetensors"),
        std::string("../model/../outside.safetensors"), std::string("/dev/zero")}) {
    SCOPED_TRACE(shard);
    outer.Copy(MINISGL_SOURCE_DIR "/tests/golden/models/qwen2/config.json", "model/config.json");
    outer.Copy(MINISGL_SOURCE_DIR "/tests/fuzz/corpus/tokenizer/small_unigram.model",
               "model/tokenizer.model");
    outer.Write("model/model.safetensors.index.json",
                R"({"weight_map": {"lm_head.weight": ")" + shard + "\"}}");
    const Outcome outcome = RunWithFault({"run", "--model", outer.Path("model"), "--raw", "-p", "x",
                                          "--no-stdin", "--device", "cpu", "--quiet"},
                                         {});
    EXPECT_EQ(outcome.exit_code, kBadInput) << outcome.err;
    EXPECT_NE(outcome.err.find("model.safetensors.index.json"), std::string::npos) << outcome.err;
    for (const std::string& path : outcome.opened) {
      EXPECT_EQ(fs::path(path).parent_path(), outer.Path("model")) << path;
    }
  }
}

// Loading a model whose file is truncated at a random place, or anywhere in its header.
TEST(TruncatedModelTest, EveryCutIsExit65NamingTheFile) {
  const Folder folder;
  WriteTinyModel(folder, /*with_tokenizer_json=*/false);
  const std::string path = folder.Path("model.safetensors");
  uint64_t size = fs::file_size(path);
  const int cuts = ShortOrLong(20, 200);
  for (int i = 0; i < cuts && size > 0; ++i) {
    size -= std::max<uint64_t>(1, size * 2654435761u % (size / 8 + 2));  // shorter and shorter
    fs::resize_file(path, size);
    const Outcome outcome =
        RunWithFault({"run", "--model", folder.path(), "--raw", "-p", "x", "--no-stdin", "--device",
                      "cpu", "--num-pages", "8", "--quiet"},
                     {});
    EXPECT_EQ(outcome.exit_code, kBadInput) << size << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("model.safetensors"), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty());
  }
}

// Truncated after it was opened and before its weights are read.
TEST(TruncatedModelTest, ALiveCutIsExit74NamingTheFile) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Folder folder;
  WriteTinyModel(folder, /*with_tokenizer_json=*/false);
  EXPECT_EXIT(
      {
        InstallBusErrorHandler();
        const auto checkpoint = Checkpoint::Open(folder.path());
        fs::resize_file(folder.Path("model.safetensors"), 8);
        double sum = 0;
        for (const std::string& name : (*checkpoint)->Names()) {
          const auto view = (*checkpoint)->Get(name);
          for (int64_t i = 0; i < view->num_elements(); ++i) sum += view->At(i);
        }
        std::exit(sum > 0 ? 1 : 2);
      },
      testing::ExitedWithCode(kIoError), "model.safetensors.*became shorter");
}

// A line of more than 64 MiB becomes an error row, and is not kept in memory for that.
TEST(LongLineTest, ALineOverTheCapIsAnErrorRowInFlatMemory) {
  MarkSlow("a line of hundreds of megabytes");
  const Folder folder;
  WriteTinyModel(folder, /*with_tokenizer_json=*/false);
  const std::string row = R"({"prompt": "the fox", "max_tokens": 2})";
  {
    std::string lines = row + "\n{\"prompt\": \"";
    lines.append(size_t{200} << 20, 'a');
    folder.Write("rows.jsonl", lines + "\"}\n" + row + "\n");
  }
  const Outcome outcome =
      RunWithFault({"run", "--model", folder.path(), "--file", folder.Path("rows.jsonl"),
                    "--device", "cpu", "--threads", "1", "--num-pages", "8", "--quiet"},
                   {});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3) << outcome.out;
  EXPECT_NE(outcome.out.find("\"line\": 2"), std::string::npos) << outcome.out;
  EXPECT_LT(outcome.peak_bytes,
            int64_t{200} << 20);  // the line up to its limit, twice while the buffer grows
}

}  // namespace
}  // namespace minisgl::faults
