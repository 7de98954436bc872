// GGUF files: the contents of a sound one, and damaged ones, which are refused.
#include "minisgl/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gguf_builder.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

// Writes the parts of a file, with the caller's sizes and counts.
class GgufBytes {
 public:
  template <typename Int>
  GgufBytes& Put(Int value) {
    for (size_t i = 0; i < sizeof(Int); ++i) {
      text_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xFF));
    }
    return *this;
  }
  GgufBytes& Text(const std::string& text) {
    Put<uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  GgufBytes& Begin(uint64_t num_tensors, uint64_t num_keys, uint32_t version = 3) {
    text_ = "GGUF";
    return Put(version).Put(num_tensors).Put(num_keys);
  }
  GgufBytes& Key(const std::string& key, GgufType type) {
    return Text(key).Put(static_cast<uint32_t>(type));
  }
  GgufBytes& Array(const std::string& key, GgufType type, uint64_t count) {
    return Key(key, GgufType::kArray).Put(static_cast<uint32_t>(type)).Put(count);
  }
  GgufBytes& Tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                    uint64_t offset) {
    Text(name).Put(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) Put(size);
    return Put(type).Put(offset);
  }
  // To a multiple of 32 bytes, then `count` bytes of data.
  std::string WithData(size_t count) const {
    std::string text = text_;
    text.resize((text.size() + 31) / 32 * 32 + count);
    return text;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Result<GgufHeader> ParseGguf(const std::string& text) {
  return GgufHeader::Parse(std::as_bytes(std::span(text)));
}

std::string GgufErrorOf(const std::string& text) {
  const auto header = ParseGguf(text);
  EXPECT_TRUE(header.ok() || header.status().code() == StatusCode::kBadInput);
  return header.ok() ? "" : header.status().message();
}

void ExpectGgufError(const std::string& text, const std::string& part) {
  EXPECT_NE(GgufErrorOf(text).find(part), std::string::npos) << GgufErrorOf(text);
}

// Two tensors: 64 elements of F32 and 2 x 32 of Q8_0.
GgufBytes Sound() {
  GgufBytes bytes;
  bytes.Begin(2, 1).Key("general.architecture", GgufType::kString).Text("llama");
  bytes.Tensor("a", {64}, 0, 0).Tensor("b", {32, 2}, 8, 256);
  return bytes;
}

TEST(GgufFileTest, ASoundFileIsReadAsItIs) {
  const std::string text = Sound().WithData(256 + 68);
  const auto header = ParseGguf(text);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->version, 3u);
  EXPECT_EQ(header->alignment, 32u);
  EXPECT_EQ(header->Find("general.architecture")->AsString(), "llama");
  EXPECT_EQ(header->Find("general.name"), nullptr);
  ASSERT_EQ(header->tensors.size(), 2u);
  const GgufTensor& b = header->tensors[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 32}));
  EXPECT_STREQ(b.type->name, "Q8_0");
  EXPECT_EQ(b.begin, header->data_begin + 256);
  EXPECT_EQ(b.end, text.size());
}

TEST(GgufFileTest, EachTypeOfValueIsRead) {
  GgufBytes bytes;
  bytes.Begin(0, 12);
  bytes.Key("u8", GgufType::kUint8).Put<uint8_t>(200).Key("i8", GgufType::kInt8).Put<int8_t>(-3);
  bytes.Key("u16", GgufType::kUint16).Put<uint16_t>(60000);
  bytes.Key("i16", GgufType::kInt16).Put<int16_t>(-300);
  bytes.Key("u32", GgufType::kUint32).Put<uint32_t>(4'000'000'000);
  bytes.Key("i32", GgufType::kInt32).Put<int32_t>(-70'000);
  bytes.Key("f32", GgufType::kFloat32).Put(std::bit_cast<uint32_t>(0.5f));
  bytes.Key("bool", GgufType::kBool).Put<uint8_t>(1);
  bytes.Key("u64", GgufType::kUint64).Put<uint64_t>(uint64_t{1} << 63);
  bytes.Key("i64", GgufType::kInt64).Put<int64_t>(INT64_MIN);
  bytes.Key("f64", GgufType::kFloat64).Put(std::bit_cast<uint64_t>(-2.25));
  bytes.Array("list", GgufType::kString, 3).Text("x").Text("").Text("yz");
  const std::string text = bytes.text();
  const auto header = ParseGguf(text);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->Find("u8")->AsInt(), 200);
  EXPECT_EQ(header->Find("i8")->AsInt(), -3);
  EXPECT_EQ(header->Find("u16")->AsInt(), 60000);
  EXPECT_EQ(header->Find("i16")->AsInt(), -300);
  EXPECT_EQ(header->Find("u32")->AsInt(), 4'000'000'000);
  EXPECT_EQ(header->Find("i32")->AsInt(), -70'000);
  EXPECT_EQ(header->Find("f32")->AsDouble(), 0.5);
  EXPECT_EQ(header->Find("f32")->AsInt(), std::nullopt);
  EXPECT_EQ(header->Find("bool")->AsBool(), true);
  EXPECT_EQ(header->Find("u64")->AsInt(), std::nullopt);
  EXPECT_EQ(header->Find("u64")->AsDouble(), 9223372036854775808.0);
  EXPECT_EQ(header->Find("i64")->AsInt(), INT64_MIN);
  EXPECT_EQ(header->Find("f64")->AsDouble(), -2.25);
  std::vector<GgufValue> list;
  for (const GgufValue& element : header->Find("list")->Elements()) list.push_back(element);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(header->Find("list")->Elements().size(), 3u);
  EXPECT_EQ(header->Find("bool")->Elements().size(), 0u);
  EXPECT_EQ(list[1].AsString(), "");
  EXPECT_EQ(list[2].AsString(), "yz");
  EXPECT_EQ(header->Find("list")->Elements(2).size(), 2u);
  EXPECT_EQ(header->Find("list")->AsString(), std::nullopt);
}

TEST(GgufFileTest, EveryCutOfAFileIsAnError) {
  const std::string text = Sound().WithData(256 + 68);
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_NE(GgufErrorOf(text.substr(0, length)), "") << length;
  }
  EXPECT_EQ(GgufErrorOf(text + "padding"), "");
}

TEST(GgufFileTest, WhatIsNoSuchFileIsSaid) {
  ExpectGgufError("GGML....", "no GGUF file");
  ExpectGgufError(GgufBytes().Begin(0, 0, 1).text(), "version 1; 2 and 3 are read");
  ExpectGgufError(GgufBytes().Begin(0, 0, 0x03000000).text(), "big-endian");
  EXPECT_EQ(GgufErrorOf(GgufBytes().Begin(0, 0, 2).text()), "");
}

TEST(GgufFileTest, MetadataThatLiesIsRefused) {
  const auto begin = [](uint64_t num_keys) { return GgufBytes().Begin(0, num_keys); };
  ExpectGgufError(begin(1).Key("k", static_cast<GgufType>(13)).Put<uint64_t>(0).text(), "type 13");
  ExpectGgufError(begin(1).Key("k", GgufType::kBool).Put<uint8_t>(2).text(), "truth value of 2");
  ExpectGgufError(begin(1).Array("k", GgufType::kArray, 1).Put<uint64_t>(0).text(),
                  "array of arrays");
  ExpectGgufError(begin(2)
                      .Key("k", GgufType::kUint32)
                      .Put<uint32_t>(1)
                      .Key("k", GgufType::kUint32)
                      .Put<uint32_t>(2)
                      .text(),
                  "\"k\" occurs twice");
  for (const uint32_t alignment : {0u, 24u, 1u << 21}) {
    ExpectGgufError(begin(1).Key("general.alignment", GgufType::kUint32).Put(alignment).text(),
                    "power of two");
  }
  ExpectGgufError(begin(1).Key("general.alignment", GgufType::kString).Text("32").text(),
                  "another type");
  ExpectGgufError(begin(1).Text(std::string(70'000, 'k')).text(), "at most 65535");
}

TEST(GgufFileTest, TensorsThatLieAreRefused) {
  const auto one = [](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    return GgufBytes().Begin(1, 0).Tensor("t", sizes, type, offset).WithData(1024);
  };
  EXPECT_EQ(GgufErrorOf(one({256}, 0, 0)), "");
  ExpectGgufError(one({257}, 0, 0), "cut off, or damaged");
  ExpectGgufError(one({256}, 0, 32), "cut off, or damaged");
  ExpectGgufError(one({256}, 0, 8), "no multiple of 32");
  ExpectGgufError(one({}, 0, 0), "0 dimensions");
  ExpectGgufError(one({0}, 0, 0), "dimension of 0");
  ExpectGgufError(one({33}, 8, 0), "Q8_0 needs a multiple of 32");
  ExpectGgufError(one({128}, 12, 0), "Q4_K needs a multiple of 256");
  for (const uint32_t type : {99u, 0xFFFFFFFFu}) {
    ExpectGgufError(one({256}, type, 0), "not known");
  }
  for (const auto& [type, text] :
       {std::pair{9u,
                  "Q8_1, which ggml has for the inputs of products and not for weights; use a "
                  "file of another type, as Q8_0"},
        {15u, "Q8_K, which ggml has for the inputs"},
        {4u, "Q4_2, which ggml has withdrawn"},
        {5u, "Q4_3"},
        {33u, "Q4_0_8_8, which ggml has withdrawn; use a file of another type, as Q4_0"}}) {
    ExpectGgufError(one({256}, type, 0), text);
  }
  ExpectGgufError(
      GgufBytes().Begin(2, 0).Tensor("t", {8}, 0, 0).Tensor("t", {8}, 0, 32).WithData(99),
      "\"t\" occurs twice");
  ExpectGgufError(
      GgufBytes().Begin(2, 0).Tensor("t", {16}, 0, 0).Tensor("u", {8}, 0, 32).WithData(99),
      "overlap");
  ExpectGgufError(GgufBytes().Begin(1, 0).Tensor(std::string(600, 'n'), {8}, 0, 0).WithData(99),
                  "at most 512");
}

// Faults that were found in llama.cpp's reader.
TEST(GgufFileTest, PublishedFaultsOfOtherReadersAreErrors) {
  // CVE-2024-21802: more dimensions than the reader has room for.
  ExpectGgufError(GgufBytes().Begin(1, 0).Tensor("t", {1, 1, 1, 1, 1}, 0, 0).WithData(64),
                  "5 dimensions");
  // CVE-2024-21836, CVE-2024-23605: counts whose product with the size of an entry wraps around.
  for (const uint64_t count : {uint64_t{1} << 59, UINT64_MAX, uint64_t{1} << 32}) {
    ExpectGgufError(GgufBytes().Begin(count, 0).WithData(1000), "tensors");
    ExpectGgufError(GgufBytes().Begin(0, count).WithData(1000), "keys");
  }
  // CVE-2024-21825: an array whose bytes wrap around.
  for (const GgufType type : {GgufType::kUint64, GgufType::kString, GgufType::kUint8}) {
    for (const uint64_t count : {uint64_t{1} << 61, UINT64_MAX, (uint64_t{1} << 61) + 1}) {
      ExpectGgufError(GgufBytes().Begin(0, 1).Array("k", type, count).WithData(1000), "are left");
    }
  }
  // CVE-2024-23496: a string of 2^64 - 1 bytes, to which a reader adds one for its end.
  ExpectGgufError(GgufBytes().Begin(0, 1).Put(UINT64_MAX).WithData(1000), "at most 65535");
  ExpectGgufError(
      GgufBytes().Begin(0, 1).Key("k", GgufType::kString).Put(UINT64_MAX).WithData(1000),
      "are left");
  // CVE-2025-53630: tensors whose sizes wrap around when they are added, or multiplied.
  ExpectGgufError(GgufBytes().Begin(1, 0).Tensor("t", {1ull << 32, 1ull << 32}, 0, 0).WithData(64),
                  "too many elements");
  ExpectGgufError(GgufBytes().Begin(1, 0).Tensor("t", {1ull << 62}, 0, 0).WithData(64),
                  "more than memory can hold");
  ExpectGgufError(
      GgufBytes().Begin(1, 0).Tensor("t", {1ull << 61}, 0, uint64_t{0} - 64).WithData(64),
      "past 2^64");
  ExpectGgufError(
      GgufBytes().Begin(1, 0).Tensor("t", {1ull << 40}, 0, uint64_t{0} - 64).WithData(64),
      "past 2^64");
}

// The file that was opened last is shared as long as it is open and unchanged.
TEST(GgufFileTest, AnOpenFileIsReadOnce) {
  const TemporaryFolder folder;
  GgufBuilder builder = GgufBuilder::Llama();
  const std::string path = folder.Write("model.gguf", builder.Write());
  const std::string other = folder.Write("other.gguf", builder.Write());
  const auto data_of = [](const Result<GgufFile>& file) {
    return file.ok() ? file->header().tensors.front().data.data() : nullptr;
  };
  const auto first = GgufFile::Open(path);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(data_of(GgufFile::Open(path)), data_of(first));
  // A part may outlive the files that it was taken from.
  std::shared_ptr<const MappedFile> part;
  {
    const auto second = GgufFile::Open(other);
    EXPECT_NE(data_of(second), data_of(first));
    part = second->SharedPart(0);
  }
  EXPECT_EQ(part->path(), other);
  EXPECT_EQ(part->bytes().size(), builder.Write().size());

  EXPECT_NE(data_of(GgufFile::Open(path)), data_of(first)) << "another was opened last";
  const auto again = GgufFile::Open(path);
  builder.Int("llama.context_length", 32);
  folder.Write("model.gguf", builder.Write());
  const auto changed = GgufFile::Open(path);
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_NE(data_of(changed), data_of(again));
  EXPECT_EQ(changed->header().Find("llama.context_length")->AsInt(), 32);
  std::filesystem::remove(path);
  EXPECT_EQ(GgufFile::Open(path).status().code(), StatusCode::kNoInput);
}

}  // namespace
}  // namespace minisgl
