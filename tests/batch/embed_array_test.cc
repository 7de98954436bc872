// `minisgl embed -o FILE.npy`: the array and the file of ids beside it, error rows, kills and
// --resume.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/tensor/dtype.h"
#include "program/program.h"
#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

constexpr size_t kHeaderBytes = 128;

class EmbedArrayTest : public RunProgramTest {
 protected:
  static Arguments Command(const Arguments& more) {
    Arguments arguments = {"embed", "-m",        MINISGL_SOURCE_DIR "/tests/golden/pooling/bert",
                           "-q",    "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static ProgramResult Embed(const Arguments& more, const std::string& input = "") {
    return RunProgram(Command(more), {input, "", {}});
  }
  // The vectors of the program's rows, one after another, as bytes of little-endian f32.
  static std::string BytesOf(const std::vector<Json>& rows) {
    std::string bytes;
    for (const Json& row : rows) {
      for (const Json& number : row.Find("embedding")->as_array()) {
        Append(static_cast<float>(number.as_double()), &bytes);
      }
    }
    return bytes;
  }
  static void Append(float value, std::string* bytes) {
    char four[4];
    std::memcpy(four, &value, 4);
    bytes->append(four, 4);
  }
  // As NumPy reads it: magic, version 1.0, the length of the text, the text.
  static std::string HeaderText(const std::string& file) {
    EXPECT_GE(file.size(), kHeaderBytes);
    EXPECT_EQ(file.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
    EXPECT_EQ(file.at(kHeaderBytes - 1), '\n');
    std::string text = file.substr(10, kHeaderBytes - 11);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }
  static std::string ManyRows(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += "{\"id\": \"r" + std::to_string(i) + "\", \"text\": \"the cat " +
              std::string(static_cast<size_t>(i * 7 % 40), 'o') + "\"}\n";
    }
    return rows;
  }
};

TEST_F(EmbedArrayTest, RowsOfTheArrayAreThoseOfTheInput) {
  const std::string input = folder_.Write("in.jsonl", ManyRows(12));
  const std::vector<Json> rows = Rows(Embed({"--file", input}).out);
  ASSERT_EQ(rows.size(), 12u);
  const std::string out = folder_.Path("out.npy");
  const ProgramResult run = Embed({"--file", input, "-o", out});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string array = folder_.Read("out.npy");
  EXPECT_EQ(HeaderText(array), "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 32), }");
  EXPECT_EQ(array.size() % 64, 12u * 32 * 4 % 64);
  EXPECT_TRUE(array.substr(kHeaderBytes) == BytesOf(rows));
  const std::vector<Json> ids = Rows(folder_.Read("out.npy.ids.jsonl"));
  ASSERT_EQ(ids.size(), 12u);
  EXPECT_EQ(ids[7].Dump(), R"({"id": "r7", "index": 7})");
  // It is not replaced by accident; with all rows there it is made again, in another type.
  ExpectFails(Embed({"--file", input, "-o", out}), 73, "is not empty");
  ASSERT_EQ(Embed({"--file", input, "-o", out, "--resume", "--npy-dtype", "f16"}).exit_code, 0);
  const std::string halves = folder_.Read("out.npy");
  EXPECT_EQ(HeaderText(halves), "{'descr': '<f2', 'fortran_order': False, 'shape': (12, 32), }");
  ASSERT_EQ(halves.size(), kHeaderBytes + 12 * 32 * 2);
  for (size_t i = 0; i < 12u * 32; ++i) {
    float value = 0;
    std::memcpy(&value, array.data() + kHeaderBytes + 4 * i, 4);
    uint16_t half = 0;
    std::memcpy(&half, halves.data() + kHeaderBytes + 2 * i, 2);
    ASSERT_EQ(half, FloatToF16(value)) << i;
  }
}

// Error rows before the first vector, too; lists have a row for each text; lines of Batch files.
TEST_F(EmbedArrayTest, ErrorRowsAreNaNAndListsHaveARowForEachText) {
  const std::string rows =
      "{\"id\": 1}\n"
      "{\"id\": 2, \"text\": \"a\", \"temperature\": 1}\n"
      "{\"input\": [\"a\", \"the cat\"]}\n"
      "{\"id\": 4, \"text\": \"a\", \"dimensions\": 3}\n"
      "{\"custom_id\": \"b\", \"method\": \"POST\", \"url\": \"/v1/embeddings\", \"body\": "
      "{\"model\": \"m\", \"input\": \"a\", \"encoding_format\": \"float\"}}\n"
      "{\"custom_id\": \"c\", \"method\": \"POST\", \"url\": \"/v1/embeddings\", \"body\": "
      "{\"model\": \"m\"}}\n";
  const std::string vectors =
      BytesOf(Rows(Embed({}, "\"a\"\n\"the cat\"\n").out));  // of both, in this order
  const size_t width = 32 * 4;
  ASSERT_EQ(vectors.size(), 2 * width);
  // From a pipe, too, which cannot be resumed.
  const std::string out = folder_.Path("out.npy");
  const ProgramResult run = Embed({"-o", out}, rows);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const std::string array = folder_.Read("out.npy");
  EXPECT_EQ(HeaderText(array), "{'descr': '<f4', 'fortran_order': False, 'shape': (7, 32), }");
  ASSERT_EQ(array.size(), kHeaderBytes + 7 * width);
  const auto row_of = [&](size_t i) { return array.substr(kHeaderBytes + i * width, width); };
  for (const size_t i : {0, 1, 4, 6}) {
    for (size_t at = 0; at < width; at += 4) {
      float value = 0;
      std::memcpy(&value, row_of(i).data() + at, 4);
      EXPECT_TRUE(std::isnan(value)) << i;
    }
  }
  EXPECT_TRUE(row_of(2) + row_of(3) == vectors);
  EXPECT_TRUE(row_of(5) == vectors.substr(0, width));
  EXPECT_EQ(folder_.Read("out.npy.ids.jsonl"),
            "{\"id\": 1, \"index\": 0, \"error\": \"invalid_row\"}\n"
            "{\"id\": 2, \"index\": 1, \"error\": \"unsupported_field\"}\n"
            "{\"id\": null, \"index\": 2, \"text\": 0}\n"
            "{\"id\": null, \"index\": 2, \"text\": 1}\n"
            "{\"id\": 4, \"index\": 3, \"error\": \"invalid_row\"}\n"
            "{\"id\": \"b\", \"index\": 4}\n"
            "{\"id\": \"c\", \"index\": 5, \"error\": \"invalid_row\"}\n");
  // With a file of error rows the array has no others.
  const std::string input = folder_.Write("in.jsonl", rows);
  const std::string apart = folder_.Path("apart.npy"), errors = folder_.Path("errors.jsonl");
  EXPECT_EQ(Embed({"--file", input, "-o", apart, "--errors", errors}).exit_code, 1);
  EXPECT_TRUE(folder_.Read("apart.npy").substr(kHeaderBytes) == vectors + vectors.substr(0, width));
  EXPECT_EQ(Rows(folder_.Read("errors.jsonl")).size(), 4u);
  EXPECT_EQ(Rows(folder_.Read("apart.npy.ids.jsonl")).size(), 3u);
}

// An array is there in one piece or not at all.
TEST_F(EmbedArrayTest, AKilledRunIsCompletedByResume) {
  const std::string input = folder_.Write("in.jsonl", ManyRows(200));
  ASSERT_EQ(Embed({"--file", input, "-o", folder_.Path("right.npy")}).exit_code, 0);
  const std::string right = folder_.Read("right.npy"), ids = folder_.Read("right.npy.ids.jsonl");
  const Arguments arguments = {
      "--file", input,     "-o", folder_.Path("out.npy"), "--max-running-requests",
      "2",      "--grace", "0"};
  Arguments resumed = arguments;
  resumed.emplace_back("--resume");
  for (const int number : {SIGKILL, SIGTERM}) {
    for (const char* name : {"out.npy", "out.npy.jsonl", "out.npy.ids.jsonl"}) {
      std::filesystem::remove(folder_.Path(name));
    }
    {
      Arguments forced = arguments;
      forced.emplace_back("--force");
      Program program(Command(forced), {});
      while (program.Runs() && folder_.Read("out.npy.jsonl").size() < 4000) {
      }
      program.Signal(number);
      program.Wait();
    }
    const std::string left = folder_.Read("out.npy");
    EXPECT_TRUE(left.empty() || left == right);
    const ProgramResult run = Embed(resumed);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(folder_.Read("out.npy") == right);
    EXPECT_TRUE(folder_.Read("out.npy.ids.jsonl") == ids);
  }
  // Whatever a kill left of the array, it is made of the rows again.
  folder_.Write("out.npy", right.substr(0, 1000));
  EXPECT_EQ(Embed(resumed).exit_code, 0);
  EXPECT_TRUE(folder_.Read("out.npy") == right);
}

TEST_F(EmbedArrayTest, OptionsThatDoNotFitAreRefused) {
  const std::string input = folder_.Write("in.jsonl", "\"a\"\n");
  ExpectFails(Embed({"--file", input, "--npy-dtype", "f16"}), 64, "ends in .npy");
  ExpectFails(Embed({"-p", "a", "-o", folder_.Path("p.npy")}), 64, "give --file");
  ExpectFails(Embed({"--file", input, "-o", folder_.Path("e.npy"), "--errors",
                     folder_.Path("e.npy.ids.jsonl")}),
              73, "choose another");
  folder_.Write("i.npy.ids.jsonl", "kept");
  ExpectFails(Embed({"--file", input, "-o", folder_.Path("i.npy")}), 73, "is not empty");
  // No rows: an array without any.
  EXPECT_EQ(
      Embed({"--file", folder_.Write("none.jsonl", ""), "-o", folder_.Path("none.npy")}).exit_code,
      0);
  EXPECT_EQ(HeaderText(folder_.Read("none.npy")),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 0), }");
}

}  // namespace
}  // namespace minisgl::batch
