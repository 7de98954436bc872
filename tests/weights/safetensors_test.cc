// The header parser against built files: each rule of the format broken in turn, files at the edge
// of the rules, random files, and every cut of a good one.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "minisgl/weights/checkpoint.h"
#include "processor_seconds.h"
#include "test_files.h"

namespace minisgl {
namespace {

using Entries = std::map<std::string, SafetensorsFile::Entry, std::less<>>;

constexpr const char* kFile = "dir/model.safetensors";

Result<Entries> Parse(std::string_view bytes, uint64_t* data_begin = nullptr) {
  uint64_t ignored = 0;
  return SafetensorsFile::ParseHeader(AsBytes(bytes), kFile,
                                      data_begin == nullptr ? &ignored : data_begin);
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* part;  // of the message
};

void ExpectAllRefused(const std::vector<BadFile>& files) {
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.name);
    const Result<Entries> entries = Parse(file.bytes);
    ASSERT_FALSE(entries.ok());
    ExpectError(entries.status(), StatusCode::kBadInput, file.part);
    EXPECT_TRUE(entries.status().message().starts_with(kFile)) << entries.status().message();
  }
}

// A header of one tensor whose members are `members`; no data.
std::string OneEntry(const std::string& members) { return FileBytes("{\"t\":{" + members + "}}"); }

std::string Nested(int depth) {
  return "{\"t\":" + std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']') + "}";
}

const std::string kGoodMembers = R"("dtype":"F32","shape":[0],"data_offsets":[0,0])";

TEST(SafetensorsTest, RefusesABadHeaderLength) {
  ExpectAllRefused({
      {"empty file", "", "is empty"},
      {"seven bytes", std::string(7, '\0'), "found 7 bytes"},
      {"length and nothing else", LengthBytes(2), "cut short"},
      {"zero length", LengthBytes(0), "does not begin with {"},
      {"zero length with data", LengthBytes(0) + "{}", "does not begin with {"},
      {"one more than there is", LengthBytes(3) + "{}", "cut short"},
      {"one over the limit", LengthBytes(100'000'001) + "{}", "100000001"},
      {"100 MiB", LengthBytes(100 << 20) + "{}", "header length"},
      {"2^63", LengthBytes(uint64_t{1} << 63) + "{}", "header length"},
      {"wraps with the 8", LengthBytes(~uint64_t{0} - 7) + "{}", "header length"},
      {"all ones", LengthBytes(~uint64_t{0}) + "{}", "header length"},
      {"big endian", std::string(7, '\0') + "\x02{}", "header length"},
      {"a pickle", std::string("PK\x03\x04") + std::string(60, '\0'), "is a zip archive"},
      {"a git-lfs pointer", "version https://git-lfs.github.com/spec/v1\noid",
       "is a git-lfs pointer; run git lfs pull"},
      {"space that was reserved", std::string(4096, '\0'), "is an incomplete download"},
      {"a page in its place", "<!DOCTYPE html><html>", "is an HTML page"},
  });
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNoJsonObject) {
  ExpectAllRefused({
      {"array", FileBytes("[]"), "does not begin with {"},
      {"leading space", FileBytes(" {}"), "does not begin with {"},
      {"byte order mark", FileBytes("\xEF\xBB\xBF{}"), "does not begin with {"},
      {"NUL", FileBytes(std::string("\0{}", 3)), "does not begin with {"},
      {"unclosed", FileBytes("{"), "not valid JSON"},
      {"unclosed string", FileBytes("{\"a"), "not valid JSON"},
      {"text after", FileBytes("{}x"), "not valid JSON"},
      {"NUL padding", FileBytes(std::string("{}\0\0", 4)), "not valid JSON"},
      {"NUL, then more", FileBytes(std::string("{}\0{\"a\"", 7)), "not valid JSON"},
      {"two objects", FileBytes("{}{}"), "not valid JSON"},
      {"comma at the end", FileBytes("{" + EntryText("t", "F32", "[0]", "[0,0]") + ",}"),
       "not valid JSON"},
      {"comment", FileBytes("{/**/}"), "not valid JSON"},
      {"single quotes", FileBytes("{'a':1}"), "not valid JSON"},
      {"NaN", OneEntry(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,0])"), "not valid JSON"},
      {"line break in a name", FileBytes("{\"a\nb\":1}"), "not valid JSON"},
      {"lone surrogate", FileBytes(R"({"\ud800":1})"), "not valid JSON"},
  });
}

TEST(SafetensorsTest, RefusesIllFormedUtf8) {
  for (const char* bad : {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    SCOPED_TRACE(Visible(bad));
    const std::string header = fmt::format("{{\"{}\":{{{}}}}}", bad, kGoodMembers);
    ExpectError(Parse(FileBytes(header)).status(), StatusCode::kBadInput, "not valid UTF-8");
  }
}

TEST(SafetensorsTest, RefusesDuplicateKeysAndDeepNesting) {
  const std::string entry = EntryText("t", "F32", "[0]", "[0,0]");
  ExpectAllRefused({
      {"same tensor twice", FileBytes("{" + entry + "," + entry + "}"), "duplicate key \"t\""},
      {"spelled differently", FileBytes("{" + entry + R"(,"\u0074":{)" + kGoodMembers + "}}"),
       "duplicate key \"t\""},
      {"metadata twice", FileBytes(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate key"},
      {"dtype twice", OneEntry(R"("dtype":"F32",)" + kGoodMembers), "duplicate key \"dtype\""},
      {"shape twice", OneEntry(R"("shape":[1],)" + kGoodMembers), "duplicate key \"shape\""},
      {"nine deep", FileBytes(Nested(8)), "deep"},
      {"a hundred thousand deep", FileBytes(Nested(100'000)), "deep"},
      {"metadata key twice", FileBytes(R"({"__metadata__":{"a":"b","a":"b"}})"), "duplicate key"},
  });
}

TEST(SafetensorsTest, RefusesBadMetadata) {
  ExpectAllRefused({
      {"null twice", FileBytes(R"({"__metadata__":null,"__metadata__":null})"), "duplicate key"},
      {"array", FileBytes(R"({"__metadata__":[]})"), "__metadata__"},
      {"number value", FileBytes(R"({"__metadata__":{"a":1}})"), "an integer at \"a\""},
      {"object value", FileBytes(R"({"__metadata__":{"a":{}}})"), "strings only"},
      {"null value", FileBytes(R"({"__metadata__":{"a":null}})"), "strings only"},
  });
}

TEST(SafetensorsTest, RefusesEntriesThatLackAMemberOrHaveItWrong) {
  ExpectAllRefused({
      {"no object", FileBytes(R"({"t":1})"), "tensor \"t\": an object is needed"},
      {"null", FileBytes(R"({"t":null})"), "an object is needed"},
      {"empty", OneEntry(""), "dtype is unknown (found nothing)"},
      {"no dtype", OneEntry(R"("shape":[0],"data_offsets":[0,0])"), "found nothing"},
      {"dtype a number", OneEntry(R"("dtype":4,"shape":[0],"data_offsets":[0,0])"), "dtype"},
      {"dtype unknown", OneEntry(R"("dtype":"F33","shape":[0],"data_offsets":[0,0])"), "F33"},
      {"dtype lower case", OneEntry(R"("dtype":"f32","shape":[0],"data_offsets":[0,0])"), "dtype"},
      {"dtype empty", OneEntry(R"("dtype":"","shape":[0],"data_offsets":[0,0])"), "dtype"},
      {"dtype with NUL", OneEntry(R"("dtype":"F32\u0000","shape":[0],"data_offsets":[0,0])"),
       "dtype"},
      {"no shape", OneEntry(R"("dtype":"F32","data_offsets":[0,4])"), "shape"},
      {"shape a number", OneEntry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), "shape"},
      {"negative dim", OneEntry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "shape"},
      {"broken dim", OneEntry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), "shape"},
      {"dim as float", OneEntry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "shape"},
      {"dim as text", OneEntry(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), "shape"},
      {"dim 2^64-1",
       OneEntry(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0])"), "shape"},
      {"rank 9", OneEntry(R"("dtype":"U8","shape":[0,1,1,1,1,1,1,1,1],"data_offsets":[0,0])"),
       "at most 8"},
      {"no offsets", OneEntry(R"("dtype":"F32","shape":[0])"), "data_offsets"},
      {"one offset", OneEntry(R"("dtype":"F32","shape":[0],"data_offsets":[0])"), "data_offsets"},
      {"three offsets", OneEntry(R"("dtype":"F32","shape":[0],"data_offsets":[0,0,0])"), "offsets"},
      {"offsets as text", OneEntry(R"("dtype":"F32","shape":[0],"data_offsets":["0","0"])"),
       "data_offsets"},
      {"negative offset", OneEntry(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])"), "offsets"},
      {"reversed", OneEntry(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), "data_offsets"},
      {"name of 513 bytes",
       FileBytes("{" + EntryText(std::string(513, 'n'), "F32", "[0]", "[0,0]") + "}"), "513 bytes"},
  });
}

TEST(SafetensorsTest, RefusesASizeThatIsNotThatOfTheShape) {
  const auto file = [](const char* dtype, const char* shape, int64_t end) {
    return FileBytes("{" + EntryText("t", dtype, shape, fmt::format("[0,{}]", end)) + "}",
                     std::string(static_cast<size_t>(std::clamp<int64_t>(end, 0, 100)), 'd'));
  };
  ExpectAllRefused({
      {"one byte short", file("F32", "[2]", 7), "hold 7 bytes"},
      {"one byte long", file("F32", "[2]", 9), "shape [2] has 8"},
      {"f16 sized as f32", file("F16", "[2]", 8), "has 4"},
      {"empty tensor with bytes", file("F32", "[3, 0]", 12), "has 0"},
      {"scalar of two", file("F32", "[]", 8), "shape [] has 4"},
      {"product wraps to 0", file("U8", "[4294967296, 4294967296]", 0), "too large"},
      {"product wraps to 16", file("U8", "[4611686018427387908, 4]", 16), "too large"},
      {"bytes wrap to 8", file("F64", "[2305843009213693953]", 8), "too large"},
      {"8 dims wrap", file("U8", "[65536, 65536, 65536, 65536, 1, 1, 1, 1]", 0), "too large"},
      {"2^63 - 1 bytes", file("U8", "[9223372036854775807]", 9223372036854775807), "cut short"},
  });
}

// Tensors a, b, c, ... of bytes at these offsets, and so much data.
std::string Tiled(const std::vector<std::pair<int64_t, int64_t>>& offsets, size_t data_bytes) {
  std::string header;
  char name = 'a';
  for (const auto& [begin, end] : offsets) {
    header += fmt::format("{}{}", header.empty() ? "{" : ",",
                          EntryText(std::string(1, name++), "U8", fmt::format("[{}]", end - begin),
                                    fmt::format("[{},{}]", begin, end)));
  }
  return FileBytes(header + "}", std::string(data_bytes, 'd'));
}

TEST(SafetensorsTest, RefusesTensorsThatDoNotTileTheData) {
  ExpectAllRefused({
      {"begins late", Tiled({{1, 4}}, 4), "\"a\": leaves a hole"},
      {"hole", Tiled({{0, 2}, {3, 4}}, 4), "\"b\": leaves a hole"},
      {"hole, given in reverse", Tiled({{3, 4}, {0, 2}}, 4), "\"a\": leaves a hole"},
      {"overlap by one", Tiled({{0, 3}, {2, 4}}, 4), "\"b\": overlaps"},
      {"same place", Tiled({{0, 4}, {0, 4}}, 4), "\"b\": overlaps"},
      {"one in another", Tiled({{0, 4}, {1, 3}}, 4), "overlaps"},
      {"three, the last overlaps", Tiled({{0, 2}, {2, 4}, {3, 5}}, 5), "\"c\": overlaps"},
      {"one byte after", Tiled({{0, 3}}, 4), "bytes after the last tensor"},
      {"data and no tensors", FileBytes("{}", "d"), "bytes after the last tensor"},
      {"one byte short", Tiled({{0, 5}}, 4), "cut short"},
      {"no data", Tiled({{0, 4}, {4, 8}}, 0), "cut short"},
      {"empty tensor past the end", Tiled({{0, 4}, {5, 5}}, 4), "hole"},
      {"empty tensor inside another", Tiled({{0, 4}, {2, 2}}, 4), "overlaps"},
      {"last starts at the end", Tiled({{0, 4}, {4, 5}}, 4), "cut short"},
      {"far past the end", Tiled({{0, 4}, {int64_t{1} << 62, (int64_t{1} << 62) + 1}}, 4), "hole"},
      {"huge", Tiled({{0, int64_t{1} << 62}}, 4), "cut short"},
  });
}

TEST(SafetensorsTest, TakesWhatTheFormatAllows) {
  struct GoodFile {
    const char* name;
    std::string bytes;
    size_t num_tensors;
  };
  const std::string eight_ones = "[1, 1, 1, 1, 1, 1, 1, 1]";
  const std::vector<GoodFile> files = {
      {"no tensors", FileBytes("{}"), 0},
      {"padded with spaces", FileBytes("{}      "), 0},
      {"white space inside", FileBytes("{\n\t\"t\" : {" + kGoodMembers + "}\r\n}"), 1},
      {"metadata", FileBytes(R"({"__metadata__":{"format":"pt","":"\u00e9"}})"), 0},
      {"empty metadata", FileBytes(R"({"__metadata__":{}})"), 0},
      {"no metadata", FileBytes(R"({"__metadata__":null})"), 0},
      {"scalar", FileBytes("{" + EntryText("t", "F32", "[]", "[0,4]") + "}", "abcd"), 1},
      {"0 dim", FileBytes("{" + EntryText("t", "F32", "[4, 0]", "[0,0]") + "}"), 1},
      {"rank 8", FileBytes("{" + EntryText("t", "U8", eight_ones, "[0,1]") + "}", "d"), 1},
      {"0 beside a huge dim",
       FileBytes("{" + EntryText("t", "U8", "[0, 9223372036854775807]", "[0,0]") + "}"), 1},
      {"empty tensors share an offset", Tiled({{0, 4}, {4, 4}, {4, 4}, {4, 8}}, 8), 4},
      {"header in reverse order", Tiled({{6, 8}, {2, 6}, {0, 2}}, 8), 3},
      {"odd alignment",
       FileBytes("{" + EntryText("a", "U8", "[1]", "[0,1]") + "," +
                     EntryText("b", "F32", "[1]", "[1,5]") + "}",
                 "xabcd"),
       2},
      {"empty name", FileBytes("{" + EntryText("", "F32", "[0]", "[0,0]") + "}"), 1},
      {"name of 512 bytes",
       FileBytes("{" + EntryText(std::string(512, 'n'), "F32", "[0]", "[0,0]") + "}"), 1},
      {"name beyond ASCII",
       FileBytes("{" + EntryText("gewicht.\u00fc", "F32", "[0]", "[0,0]") + "}"), 1},
      {"more members than it must have", OneEntry(kGoodMembers + R"(,"note":"x")"), 1},
  };
  for (const GoodFile& file : files) {
    SCOPED_TRACE(file.name);
    const Result<Entries> entries = Parse(file.bytes);
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    EXPECT_EQ(entries->size(), file.num_tensors);
  }
}

TEST(SafetensorsTest, KnowsTheSizeOfEveryDType) {
  const std::vector<std::pair<const char*, size_t>> dtypes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [dtype, bytes] : dtypes) {
    SCOPED_TRACE(dtype);
    for (size_t size : {bytes, 3 * bytes, bytes + 1}) {
      const std::string shape = fmt::format("[{}]", size / bytes);
      const std::string file =
          FileBytes("{" + EntryText("t", dtype, shape, fmt::format("[0,{}]", size)) + "}",
                    std::string(size, 0));
      EXPECT_EQ(Parse(file).ok(), size % bytes == 0 || bytes == 1) << size;
    }
  }
}

// A file of random tensors with its entries; header order, padding and alignment vary.
struct RandomFile {
  std::string bytes;
  Entries entries;
};

RandomFile MakeRandomFile(std::mt19937_64* rng) {
  const auto pick = [rng](int64_t count) {
    return static_cast<int64_t>((*rng)() % static_cast<uint64_t>(count));
  };
  const std::vector<std::pair<const char*, uint64_t>> dtypes = {
      {"U8", 1}, {"BF16", 2}, {"F16", 2}, {"F32", 4}, {"I64", 8}};
  RandomFile file;
  uint64_t at = 0;
  std::vector<std::string> texts;
  for (int64_t i = pick(9); i > 0; --i) {
    const auto& [dtype, bytes] = dtypes[static_cast<size_t>(pick(5))];
    SafetensorsFile::Entry entry;
    uint64_t size = bytes;
    entry.dtype_name = dtype;
    for (int64_t rank = pick(5); rank > 0; --rank) {
      entry.shape.push_back(pick(4));
      size *= static_cast<uint64_t>(entry.shape.back());
    }
    entry.begin = at;
    entry.end = at += size;
    const std::string name = fmt::format("layer.{}.\u00e9", i);
    texts.push_back(EntryText(name, dtype, ShapeToString(entry.shape),
                              fmt::format("[{}, {}]", entry.begin, entry.end)));
    file.entries.emplace(name, entry);
  }
  if (pick(2) == 0) texts.push_back(R"("__metadata__":{"format":"pt"})");
  std::shuffle(texts.begin(), texts.end(), *rng);
  file.bytes = FileBytes(fmt::format("{{{}}}{}", fmt::join(texts, ","),
                                     std::string(static_cast<size_t>(pick(9)), ' ')),
                         std::string(at, 'd'));
  return file;
}

TEST(SafetensorsTest, RandomFilesComeBackAsTheyWereWritten) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 rng(seed);
    const RandomFile file = MakeRandomFile(&rng);
    uint64_t data_begin = 0;
    const Result<Entries> entries = Parse(file.bytes, &data_begin);
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    ASSERT_EQ(entries->size(), file.entries.size());
    uint64_t data_bytes = 0;
    for (const auto& [name, entry] : file.entries) {
      const SafetensorsFile::Entry& read = entries->at(name);
      EXPECT_EQ(read.dtype_name, entry.dtype_name);
      EXPECT_EQ(read.shape, entry.shape);
      EXPECT_EQ(std::pair(read.begin, read.end), std::pair(entry.begin, entry.end));
      data_bytes = std::max(data_bytes, entry.end);
    }
    EXPECT_EQ(data_begin + data_bytes, file.bytes.size());
  }
}

TEST(SafetensorsTest, EveryCutOfAFileIsRefused) {
  const std::string file =
      FileBytes(R"({"__metadata__":{"format":"pt"},)" + EntryText("a", "BF16", "[2, 3]", "[0,12]") +
                    "," + EntryText("b", "F32", "[]", "[12,16]") + "}   ",
                std::string(16, 'd'));
  ASSERT_TRUE(Parse(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    SCOPED_TRACE(fmt::format("cut to {} bytes", length));
    const Result<Entries> entries = Parse(file.substr(0, length));
    ASSERT_FALSE(entries.ok());
    ExpectError(entries.status(), StatusCode::kBadInput, kFile);
  }
}

TEST(SafetensorsTest, ChangedBytesNeverLeadOutOfTheData) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 rng(seed);
    std::string bytes = MakeRandomFile(&rng).bytes;
    for (uint64_t i = 1 + rng() % 3; i > 0; --i) {
      bytes[rng() % std::min<size_t>(bytes.size(), 200)] = static_cast<char>(rng());
    }
    uint64_t data_begin = 0;
    const Result<Entries> entries = Parse(bytes, &data_begin);
    if (!entries.ok()) {
      ExpectReadable(entries.status());
      continue;
    }
    ASSERT_LE(data_begin, bytes.size());
    for (const auto& [name, entry] : *entries) {
      ASSERT_LE(entry.begin, entry.end) << "seed " << seed;
      ASSERT_LE(entry.end, bytes.size() - data_begin) << "seed " << seed;
    }
  }
}

TEST(SafetensorsTest, ParsesTheHeaderOfARealModelQuickly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kSlowdown = 10;
#else
  constexpr int kSlowdown = 1;
#endif
  // As many tensors as a dense model of 80 layers has.
  std::string header;
  constexpr int kTensors = 80 * 9 + 3;
  for (int i = 0; i < kTensors; ++i) {
    header +=
        fmt::format("{}{}", i == 0 ? "{" : ",",
                    EntryText(fmt::format("model.layers.{}.self_attn.q_proj.weight", i), "BF16",
                              "[8, 16]", fmt::format("[{},{}]", 256 * i, 256 * (i + 1))));
  }
  const std::string file = FileBytes(header + "}", std::string(256 * kTensors, 'd'));
  const double begin = ProcessorSeconds();
  ASSERT_TRUE(Parse(file).ok());
  EXPECT_LT(ProcessorSeconds() - begin, 0.05 * kSlowdown);
}

}  // namespace
}  // namespace minisgl
