// Headers of safetensors files of the largest allowed size, filled with as many entries as fit.
// Each is refused, in little memory, and in time proportional to its size.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "faults/faulty_program.h"
#include "long_form.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"
#include "slow.h"

namespace minisgl::faults {
namespace {

constexpr int64_t kMemoryMax = int64_t{64} << 20;
constexpr size_t kHeaderBytesMax = 100'000'000;
constexpr size_t kShortHeaderBytes = 2'000'000;
// Memory that does not grow with the header: the largest metadata, and small things.
constexpr int64_t kFixedBytesMax = 600 << 10;

// Bound: 50 ms for each megabyte of a header, in an optimised build on a current processor with
// nothing else on its core; headers of large models have less than one megabyte. An old processor,
// or another program on the same core, may take it three times as long, a sanitizer build twenty
// times. Time that grows with the square of the length would be minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 3 * 20;
#else
constexpr double kSlowdown = 3;
#endif

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

using Part = std::function<std::string(size_t)>;

// `front`, then part(0), part(1), ... as long as they fit, then `back`.
struct HostileHeader {
  const char* what;
  std::string front;
  Part part;
  std::string back;
  const char* message;  // a part of the error

  std::string Text(size_t bytes) const {
    std::string text = front;
    text.reserve(bytes);
    for (size_t i = 0;; ++i) {
      const std::string next = part(i);
      if (text.size() + next.size() + back.size() > bytes) return text + back;
      text += next;
    }
  }
};

Part Same(const std::string& text) {
  return [text](size_t) { return text; };
}

std::string EmptyTensor(const std::string& name) {
  return "\"" + name + R"(":{"dtype":"U8","shape":[],"data_offsets":[0,0]},)";
}

// A tensor of one byte at `begin`.
std::string OneByte(const std::string& name, size_t begin) {
  return "\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(begin) +
         "," + std::to_string(begin + 1) + "]},";
}

std::string ZeroTensor(const std::string& name, const std::string& more = "") {
  return "\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0])" + more + "},";
}

std::string Escaped(const std::string& name) {
  std::string text;
  for (const char c : name) text += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
  return text;
}

std::vector<HostileHeader> HostileValues() {
  const std::string tensor = R"({"t":{"dtype":"U8",)";
  return {
      {"sizes", tensor + R"("shape":[0)", Same(",0"), "]}}", "shape must be"},
      {"arrays for sizes", tensor + R"("shape":[[])", Same(",[]"), "]}}", "shape must be"},
      {"objects for sizes", tensor + R"("shape":[{})", Same(",{}"), "]}}", "shape must be"},
      {"texts for sizes", tensor + R"("shape":[0)", Same(",\"\""), "]}}", "shape must be"},
      {"an object of sizes", tensor + R"("shape":{"a":0)", Same(",\"a\":0"), "}}}",
       "shape must be"},
      {"offsets", tensor + R"("shape":[0],"data_offsets":[0)", Same(",0"), "]}}", "data_offsets"},
      {"digits of a size", tensor + R"("shape":[)", Same("1"), "]}}", "shape must be"},
      {"digits of a fraction", tensor + R"("shape":[0.)", Same("1"), "]}}", "shape must be"},
      {"digits of an exponent", tensor + R"("shape":[1e)", Same("9"), "]}}", "shape must be"},
      {"a dtype", R"({"t":{"dtype":"F)", Same("3"), "\"}}", "dtype is unknown"},
      {"a dtype in escapes", R"({"t":{"dtype":")", Same("\\u0046"), "\"}}", "dtype is unknown"},
      {"a list of dtypes", R"({"t":{"dtype":["F32")", Same(",\"F32\""), "]}}", "dtype is unknown"},
      {"unknown numbers", R"({"t":{"x":[0)", Same(",0"), "]}}", "dtype is unknown"},
      {"unknown arrays", R"({"t":{"x":[[])", Same(",[]"), "]}}", "dtype is unknown"},
      {"unknown keys", R"({"t":{"x":{"a":0)", Same(",\"a\":0"), "}}}", "dtype is unknown"},
      {"unknown texts", R"({"t":{"x":[0)", Same(",\"a text longer than a short string is\""), "]}}",
       "dtype is unknown"},
      {"unknown members", "{\"t\":{\"x\":0", [](size_t i) { return fmt::format(",\"x{}\":0", i); },
       "}}", "members"},
      {"a member's name", "{\"t\":{\"", Same("x"), "\":0}}", "member name"},
      {"a list for a tensor", "{\"t\":[0", Same(",0"), "]}", "object is needed"},
      {"a list of lists", "{\"t\":[[]", Same(",[[],[]]"), "]}", "object is needed"},
      {"brackets", "{\"t\":", Same("["), "", "nested more than 8 deep"},
      {"braces", "{\"t\":{\"x\":", Same("{\"x\":"), "", "nested more than 8 deep"},
      {"commas", "{\"t\":[0", Same(","), "]}", "not valid JSON"},
      {"an open text", "{\"", Same("t"), "", "not valid JSON"},
      {"an open value", tensor + "\"x\":\"", Same("\\ud83d\\ude00"), "", "not valid JSON"},
      {"an open list", "{\"t\":{\"x\":[0", Same(",\"a text\",0"), "", "not valid JSON"},
      {"space", "{", Same("\n"), "x", "not valid JSON"},
      {"space after", "{}", Same(" "), "x", "not valid JSON"},
      {"bytes that are no UTF-8", "{\"", Same("t"), "\xFF\":0}", "not valid UTF-8"},
  };
}

std::vector<HostileHeader> HostileNames() {
  const auto named = [](size_t i) { return EmptyTensor(fmt::format("{:x}", i)); };
  const auto zero = [](size_t i) { return ZeroTensor(fmt::format("{:x}", i)); };
  const std::string key_of_512(508, 'k');
  return {
      {"a tensor's name", "{\"", Same("t"), "\":{}}", "tensor name"},
      {"a tensor's name in escapes", "{\"", Same("\\u0074"), "\":{}}", "tensor name"},
      {"a tensor's size", "{", named, "\"t\":{}}", "hold 0 bytes"},
      {"the last of many tensors", "{", zero, "\"t\":{}}", "tensor \"t\": its dtype"},
      {"the last of many long names", "{",
       [=](size_t i) { return ZeroTensor(fmt::format("{}{:08x}", std::string(504, 'n'), i)); },
       "\"t\":{}}", "tensor \"t\": its dtype"},
      {"the last of many of rank 8", "{",
       [](size_t i) {
         return fmt::format(
             "\"{:x}\":{{\"dtype\":\"U8\",\"shape\":[0,1,1,1,1,1,1,1],"
             "\"data_offsets\":[0,0]}},",
             i);
       },
       "\"t\":{}}", "tensor \"t\": its dtype"},
      {"the last of many with more members", "{",
       [](size_t i) {
         return ZeroTensor(fmt::format("{:x}", i),
                           R"(,"a":0,"b":[],"c":{},"d":"","e":0,"f":0,"g":0,"h":0)");
       },
       "\"t\":{}}", "tensor \"t\": its dtype"},
      {"the last of many has the name of the first", "{", zero, ZeroTensor("\\u0030") + "\"t\":1}",
       "tensor \"t\": an object"},
      {"one name for all", "{", Same(ZeroTensor("t")), "\"x\":{}}", "tensor \"x\""},
      {"one name at the end again", "{" + ZeroTensor("t"), zero,
       R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "duplicate key \"t\""},
      {"one name, spelled in two ways", "{" + ZeroTensor(Escaped("t")), zero,
       R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "duplicate key \"t\""},
      {"no data", "{", [](size_t i) { return OneByte(fmt::format("{:x}", i), i); },
       R"("":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "cut short"},
      {"all at one place", "{", [](size_t i) { return OneByte(fmt::format("{:x}", i), 0); },
       R"("":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "overlaps"},
      {"a hole before each", "{", [](size_t i) { return OneByte(fmt::format("{:x}", i), 2 * i); },
       R"("":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "hole"},
      {"metadata of many keys", R"({"__metadata__":{"":"")",
       [](size_t i) { return fmt::format(",\"{:x}\":\"\"", i); }, "},\"t\":0}", ""},
      {"metadata of one key", R"({"__metadata__":{"":"")", Same(R"(,"":"")"), "}}", ""},
      {"metadata's long keys", R"({"__metadata__":{"":"")",
       [=](size_t i) { return fmt::format(",\"{}{:04x}\":\"\"", key_of_512, i & 0xFFFF); }, "},0}",
       ""},
      {"metadata's one long key", "{\"__metadata__\":{\"", Same("k"), "\":\"\"}}", "key of"},
      {"metadata's one long text", "{\"__metadata__\":{\"k\":\"", Same("\\n"), "\"},\"t\":0}",
       "object is needed"},
      {"metadata's lists", R"({"__metadata__":{"k":[0)", Same(",0"), "]}}", "strings only"},
      {"metadata twice", R"({"__metadata__":{},)", zero, R"("__metadata__":{}})", "duplicate key"},
  };
}

TEST(HeaderMemoryTest, HostileHeadersAreRefusedInLittleMemoryAndTime) {
  MarkSlow("50 headers of 2 MB");
  const size_t bytes = ShortOrLong(kShortHeaderBytes, kHeaderBytesMax);
  const double share = static_cast<double>(bytes) / kHeaderBytesMax;
  std::vector<HostileHeader> headers = HostileValues();
  for (HostileHeader& header : HostileNames()) headers.push_back(std::move(header));
  EXPECT_GE(headers.size(), 40u);
  int64_t most_bytes = 0;
  double most_seconds = 0;
  for (const HostileHeader& header : headers) {
    SCOPED_TRACE(header.what);
    const std::string text = header.Text(bytes);
    ASSERT_GT(text.size(), bytes - 2000);
    std::string file;
    for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(text.size() >> (8 * i)));
    file += text;
    uint64_t data_begin = 0;
    Status status;
    const double begin = ProcessorSeconds();
    Arm({});
    status =
        SafetensorsFile::ParseHeader(std::as_bytes(std::span(file)), "m.safetensors", &data_begin)
            .status();
    Disarm();
    const double seconds = ProcessorSeconds() - begin;
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_TRUE(status.message().starts_with("m.safetensors: ")) << status.message();
    // If more entries fit than are allowed, their number is reported first.
    EXPECT_TRUE(status.message().find(header.message) != std::string::npos ||
                (IsLongForm() && status.message().ends_with("more than 1000000 tensors")))
        << status.message();
    EXPECT_LT(status.message().size(), 1000u);
    // 64 MiB for a header of the largest size; for a shorter one its share and a fixed part.
    EXPECT_LT(PeakBytes(),
              std::min(kMemoryMax, static_cast<int64_t>(share * kMemoryMax) + kFixedBytesMax));
    EXPECT_LT(seconds, 0.05 * kSlowdown * static_cast<double>(bytes) / 1e6);
    most_bytes = std::max(most_bytes, PeakBytes());
    most_seconds = std::max(most_seconds, seconds);
  }
  RecordProperty("most_kib", static_cast<int>(most_bytes >> 10));
  RecordProperty("most_ms", static_cast<int>(most_seconds * 1e3));
}

// As many tensors in one file as a model of many experts has in all its files.
TEST(HeaderMemoryTest, TheLargestRealHeadersLoad) {
  constexpr size_t kTensors = 100'000;
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (size_t i = 0; i < kTensors; ++i) {
    text += fmt::format(
        ",\"model.layers.{}.mlp.experts.{}.gate_up_proj.weight_scale_inv\":{{\"dtype\":\"U8\","
        "\"shape\":[1,1],\"data_offsets\":[{},{}]}}",
        i / 1000, i % 1000, i, i + 1);
  }
  text += "}";
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(text.size() >> (8 * i)));
  file += text;
  file.append(kTensors, 'd');
  uint64_t data_begin = 0;
  Arm({});
  {
    const auto entries =
        SafetensorsFile::ParseHeader(std::as_bytes(std::span(file)), "m.safetensors", &data_begin);
    Disarm();
    ASSERT_TRUE(entries.ok()) << entries.status().message();
    EXPECT_EQ(entries->size(), kTensors);
  }
  EXPECT_LT(PeakBytes(), static_cast<int64_t>(3 * text.size()));
}

}  // namespace
}  // namespace minisgl::faults
