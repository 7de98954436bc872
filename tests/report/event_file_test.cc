// A file of events whose reader is slow, absent or gone, and delays nothing.
#include "report/event_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "minisgl/base/log.h"
#include "program/fakes.h"

namespace minisgl::report {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = std::chrono::minutes(10);

std::string Numbered(int from, int to) {
  std::string lines;
  for (int i = from; i < to; ++i) lines += "{\"number\":" + std::to_string(i) + "}\n";
  return lines;
}

class EventFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    SetLogSink([this](LogLevel, const std::string& line) { warnings_.push_back(line); });
  }
  void TearDown() override {
    file_.reset();
    SetLogSink({});
    if (reader_ >= 0) close(reader_);
  }
  void OpenFile(const std::string& path, size_t waiting_bytes_max) {
    auto output = term::Output::Open(path, false, -1);
    ASSERT_TRUE(output.ok()) << output.status().message();
    file_ = std::make_unique<EventFile>(std::move(output).value(), path, waiting_bytes_max);
  }
  void OpenPipe(size_t waiting_bytes_max = EventFile::kWaitingBytesMax) {
    const std::string path = folder_.Path("pipe");
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    reader_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader_, 0);
    ASSERT_EQ(fcntl(reader_, F_SETFL, 0), 0);
    OpenFile(path, waiting_bytes_max);
  }
  // Reads until the writer has closed the pipe.
  std::string ReadAll() const {
    std::string text;
    char buffer[1000];
    for (ssize_t count = 0; (count = read(reader_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }

  TemporaryFolder folder_;
  std::vector<std::string> warnings_;  // guarded by the log's lock; read after Finish
  int reader_ = -1;
  std::unique_ptr<EventFile> file_;
};

TEST_F(EventFileTest, ARegularFileGetsAllLines) {
  OpenFile(folder_.Path("events"), EventFile::kWaitingBytesMax);
  for (int i = 0; i < 100; ++i) file_->Write(Numbered(i, i + 1));
  EXPECT_TRUE(file_->Finish(kPatience).ok());
  EXPECT_EQ(folder_.Read("events"), Numbered(0, 100));
}

// No Write waits for the reader: all are done before it takes a byte.
TEST_F(EventFileTest, ASlowReaderGetsAllLinesAndDelaysNoWrite) {
  OpenPipe();
  const std::string all = Numbered(0, 20000);
  ASSERT_GT(all.size(), size_t{300} << 10) << "more than a pipe holds";
  for (int i = 0; i < 20000; i += 100) file_->Write(Numbered(i, i + 100));
  std::string text;
  std::thread reader([&] { text = ReadAll(); });
  EXPECT_TRUE(file_->Finish(kPatience).ok());
  file_.reset();
  reader.join();
  EXPECT_EQ(text, all);
  EXPECT_EQ(warnings_, std::vector<std::string>());
}

TEST_F(EventFileTest, AReaderThatIsTooSlowGetsTheFirstLinesWithoutAGap) {
  OpenPipe(/*waiting_bytes_max=*/100000);
  for (int i = 0; i < 20000; i += 10) file_->Write(Numbered(i, i + 10));
  std::string text;
  std::thread reader([&] { text = ReadAll(); });
  EXPECT_TRUE(file_->Finish(kPatience).ok());
  file_.reset();
  reader.join();
  EXPECT_GE(text.size(), 99000u);
  EXPECT_LT(text.size(), 200000u);
  EXPECT_EQ(text, Numbered(0, 20000).substr(0, text.size()));
  EXPECT_TRUE(text.ends_with("}\n"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("pipe: its reader is too slow"), std::string::npos) << warnings_[0];
}

TEST_F(EventFileTest, AReaderThatLeavesIsNoError) {
  OpenPipe();
  close(std::exchange(reader_, -1));
  for (int i = 0; i < 100; ++i) file_->Write(Numbered(i, i + 1));
  EXPECT_TRUE(file_->Finish(kPatience).ok());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("its reader has left"), std::string::npos) << warnings_[0];
}

TEST_F(EventFileTest, TheEndDoesNotWaitForAReaderThatTakesNothing) {
  OpenPipe();
  file_->Write(Numbered(0, 20000));
  EXPECT_TRUE(file_->Finish(milliseconds(20)).ok());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("its reader takes nothing"), std::string::npos) << warnings_[0];
}

TEST_F(EventFileTest, ItsDestructorDropsWhatWaits) {
  OpenPipe();
  file_->Write(Numbered(0, 20000));
  file_.reset();
  const std::string text = ReadAll();
  EXPECT_EQ(text, Numbered(0, 20000).substr(0, text.size()));
}

TEST_F(EventFileTest, AFullDiskIsAnErrorOfTheEnd) {
  OpenFile("/dev/full", EventFile::kWaitingBytesMax);
  for (int i = 0; i < 3; ++i) file_->Write(Numbered(i, i + 1));
  const Status status = file_->Finish(kPatience);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace minisgl::report
