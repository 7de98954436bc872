// The kinds of files that stand in place of an expected one.
#include "minisgl/base/file_kind.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace minisgl {
namespace {

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4976698672\n";

std::string NameOf(std::string_view begin) {
  const std::optional<FileKind> kind = KindOfFile(begin);
  return kind ? kind->name : "";
}

TEST(FileKindTest, KnowsWhatDownloadsLeave) {
  EXPECT_EQ(NameOf(kPointer), "a git-lfs pointer");
  EXPECT_EQ(NameOf("<!DOCTYPE html>\n<html>"), "an HTML page");
  EXPECT_EQ(NameOf("\n \r\n<HTML lang=\"en\">"), "an HTML page");
  EXPECT_EQ(NameOf("<?xml version=\"1.0\"?><Error>"), "XML");
  EXPECT_EQ(NameOf(std::string(4096, '\0')),
            "an incomplete download, which begins with zero bytes");
}

TEST(FileKindTest, KnowsArchivesAndOtherFormats) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(NameOf("\x1F\x8B\x08\x00"sv), "gzip");
  EXPECT_EQ(NameOf("\x28\xB5\x2F\xFD\x04"), "zstd");
  EXPECT_EQ(NameOf("\xFD"
                   "7zXZ"),
            "xz");
  EXPECT_EQ(NameOf("BZh91AY"), "bzip2");
  EXPECT_EQ(NameOf("PK\x03\x04..."), "a zip archive");
  EXPECT_EQ(NameOf("PAR1..."), "Parquet");
  EXPECT_EQ(NameOf("GGUF\x03"), "GGUF");
  EXPECT_EQ(NameOf("\xFF\xFE{\0"sv), "UTF-16");
  EXPECT_EQ(NameOf("{\0\"\0"sv), "UTF-16");
  EXPECT_EQ(NameOf("\0{\0\""sv), "UTF-16");
}

TEST(FileKindTest, OfWhatIsAsItShouldBeNothingIsSaid) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view begin :
       {""sv, "{"sv, "{}"sv, "{\"version\": 1}"sv, "version 2"sv, "<htm"sv, "<"sv, " "sv,
        "\xEF\xBB\xBF{}"sv, "\0\0\0\0"sv, "\x40\0\0\0\0\0\0\0{\"a\""sv, "a,b\n"sv}) {
    EXPECT_EQ(NameOf(begin), "") << begin;
  }
  EXPECT_EQ(NameOf(std::string(15, '\0')), "");
}

TEST(FileKindTest, AnErrorGivesWayToWhatTheFileIs) {
  const Status error = BadInput("f: not valid JSON");
  EXPECT_TRUE(OrFileKind(Status(), kPointer, "f").ok());
  EXPECT_EQ(OrFileKind(error, "{", "f").message(), "f: not valid JSON");
  EXPECT_EQ(OrFileKind(error, kPointer, "a\x1b/f").message(),
            "a\\x1b/f: is a git-lfs pointer; run git lfs pull");
  EXPECT_EQ(OrFileKind(error, "", "f").message(),
            "f: is empty, as an incomplete download is; download it again");
  EXPECT_EQ(OrFileKind(error, "", "f").code(), StatusCode::kBadInput);
}

}  // namespace
}  // namespace minisgl
