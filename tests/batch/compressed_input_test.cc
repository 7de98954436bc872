// Inputs in gzip and Zstandard are read like the uncompressed files, in bounded memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch/row_source.h"
#include "batch/run_input.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

using Outcome = LineReader::Outcome;

std::string LittleEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

uint32_t Crc32(std::string_view text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// RFC 1952, with RFC 1951's blocks that are stored.
std::string Gzip(std::string_view text) {
  std::string out("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", 10);
  const uint32_t crc = Crc32(text);
  const auto size = static_cast<uint32_t>(text.size());
  do {
    const std::string_view block = text.substr(0, 60000);
    text.remove_prefix(block.size());
    out += text.empty() ? '\x01' : '\x00';
    const auto length = static_cast<uint32_t>(block.size());
    out += LittleEndian(length, 2) + LittleEndian(~length, 2);
    out += block;
  } while (!text.empty());
  return out + LittleEndian(crc, 4) + LittleEndian(size, 4);
}

// RFC 8878: a frame with a window of 128 KiB, and blocks of one repeated byte or of raw bytes, the
// last one empty.
class ZstandardFrame {
 public:
  void Add(std::string_view text) {
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 60000))) {
      const std::string_view block = text.substr(0, 60000);
      blocks_ += LittleEndian(static_cast<uint32_t>(block.size()) << 3, 3);
      blocks_ += block;
    }
  }
  void Repeat(char c, uint32_t count) { blocks_ += LittleEndian(count << 3 | 1 << 1, 3) + c; }
  std::string Take() const {
    return std::string("\x28\xb5\x2f\xfd\x00\x38", 6) + blocks_ + LittleEndian(1, 3);
  }

 private:
  std::string blocks_;
};

std::string Zstandard(std::string_view text) {
  ZstandardFrame frame;
  frame.Add(text);
  return frame.Take();
}

class CompressedInputTest : public ::testing::TestWithParam<Compression> {
 protected:
  void SetUp() override {
    if (!Decompressor::Make(GetParam()).ok()) GTEST_SKIP() << "this build lacks the library";
  }
  std::string Pack(std::string_view text) const {
    return GetParam() == Compression::kGzip ? Gzip(text) : Zstandard(text);
  }
  // The lines, and the error at their end.
  static std::vector<std::string> ReadAll(LineReader* reader) {
    std::vector<std::string> lines;
    std::string line;
    Outcome outcome = Outcome::kEnd;
    while ((outcome = reader->Next(60000, &line)) == Outcome::kLine) lines.push_back(line);
    if (outcome == Outcome::kTooLong) lines.push_back("too long");
    if (outcome == Outcome::kFailed) lines.push_back("error: " + reader->status().message());
    return lines;
  }
  std::vector<std::string> ReadFile(const std::string& content) const {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in", content));
    EXPECT_TRUE(reader.ok());
    return ReadAll(&*reader);
  }

  TemporaryFolder folder_;
};

TEST_P(CompressedInputTest, LinesAreThoseOfTheText) {
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 30000; ++i) {
    lines.push_back("line " + std::to_string(i));
    text += lines.back() + "\n";
  }
  ASSERT_GT(text.size(), size_t{1} << 18) << "more than is decompressed at once";
  EXPECT_EQ(ReadFile(Pack(text)), lines);
  // Several streams in one file are one text.
  EXPECT_EQ(ReadFile(Pack(text.substr(0, 1003)) + Pack(text.substr(1003))), lines);
  EXPECT_EQ(ReadFile(Pack("")), std::vector<std::string>());
}

TEST_P(CompressedInputTest, AFileIsReadTwiceAndAPipeInPieces) {
  const std::string packed = Pack("id,a\n1,\"x\ny\"\n2,z\n");
  Result<LineReader> file = LineReader::Open(folder_.Write("in", packed));
  ASSERT_TRUE(file.ok());
  file->ReadTable(',');
  const std::vector<std::string> right = {"1,\"x\ny\"", "2,z"};
  EXPECT_EQ(ReadAll(&*file), right);
  EXPECT_EQ(file->header(), (std::vector<std::string>{"id", "a"}));
  EXPECT_EQ(file->num_bytes(), std::ssize(packed));
  ASSERT_TRUE(file->Rewind().ok());
  EXPECT_EQ(ReadAll(&*file), right);
  EXPECT_EQ(file->line_number(), 4);

  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  Result<LineReader> pipe = LineReader::Open("/dev/fd/" + std::to_string(ends[0]));
  ASSERT_TRUE(pipe.ok());
  pipe->ReadTable(',');
  std::thread writer([&, end = ends[1]] {
    for (const char byte : packed) EXPECT_EQ(write(end, &byte, 1), 1);
    close(end);
  });
  EXPECT_EQ(ReadAll(&*pipe), right);
  writer.join();
  close(ends[0]);
}

TEST_P(CompressedInputTest, DamageIsAnErrorThatNamesTheFile) {
  const std::string packed = Pack("one\ntwo\n");
  for (const size_t size : {packed.size() - 1, packed.size() - 9, size_t{5}}) {
    const std::vector<std::string> lines = ReadFile(packed.substr(0, size));
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back(), "error: " + folder_.Path("in") + ": its compressed data are cut off")
        << size;
  }
  const std::vector<std::string> lines = ReadFile(packed + "garbage");
  EXPECT_NE(lines.back().find("data are damaged"), std::string::npos) << lines.back();
  // A change between two readings.
  Result<LineReader> reader = LineReader::Open(folder_.Write("in", packed));
  ReadAll(&*reader);
  folder_.Write("in", Pack("one\nTWO\n"));
  ASSERT_TRUE(reader->Rewind().ok());
  EXPECT_NE(ReadAll(&*reader).back().find("changed while it was read"), std::string::npos);
}

// A line of 131 MB in four kilobytes: it is skipped, and is not held in memory.
TEST(CompressionTest, ALineThatGrowsBeyondBoundsIsSkipped) {
  if (!Decompressor::Make(Compression::kZstandard).ok()) GTEST_SKIP() << "no libzstd";
  const TemporaryFolder folder;
  ZstandardFrame frame;
  frame.Add("first\n");
  for (int i = 0; i < 1000; ++i) frame.Repeat('a', 128 << 10);
  frame.Add("\nlast\n");
  Result<LineReader> reader = LineReader::Open(folder.Write("in", frame.Take()));
  ASSERT_TRUE(reader.ok());
  std::string line;
  EXPECT_EQ(reader->Next(0, &line), Outcome::kLine);
  EXPECT_EQ(reader->Next(0, &line), Outcome::kTooLong);
  EXPECT_EQ(reader->Next(0, &line), Outcome::kLine);
  EXPECT_EQ(line, "last");
  EXPECT_EQ(reader->Next(0, &line), Outcome::kEnd);
}

INSTANTIATE_TEST_SUITE_P(Formats, CompressedInputTest,
                         ::testing::Values(Compression::kGzip, Compression::kZstandard),
                         [](const auto& info) {
                           return info.param == Compression::kGzip ? "Gzip" : "Zstandard";
                         });

TEST(CompressionTest, IsToldByTheFirstBytesAsSoonAsTheyTell) {
  EXPECT_EQ(CompressionOf("", false), std::nullopt);
  EXPECT_EQ(CompressionOf("\x1f", false), std::nullopt);
  EXPECT_EQ(CompressionOf("\x1f", true), Compression::kNone);
  EXPECT_EQ(CompressionOf("\x28\xb5\x2f", false), std::nullopt);
  EXPECT_EQ(CompressionOf("\x1f\x8b", false), Compression::kGzip);
  EXPECT_EQ(CompressionOf("\x28\xb5\x2f\xfd", false), Compression::kZstandard);
  EXPECT_EQ(CompressionOf("{", false), Compression::kNone);
}

}  // namespace
}  // namespace minisgl::batch
