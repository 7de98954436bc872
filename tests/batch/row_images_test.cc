// Pictures in the messages of rows: every spelling, and what is refused.
#include "batch/row_images.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/base64.h"

namespace minisgl::batch {
namespace {

std::string RowWithParts(const std::string& parts) {
  return R"({"id": "r", "messages": [{"role": "system", "content": "Look."}, )"
         R"({"role": "user", "content": [)" +
         parts + "]}]}";
}

Row GoodParts(const std::string& parts, bool lenient = false) {
  ParsedRow parsed = ParseRow(RowWithParts(parts), 3, 7, lenient);
  EXPECT_FALSE(parsed.error) << parts << ": " << (parsed.error ? parsed.error->message : "");
  return std::move(parsed.row);
}

RowError BadParts(const std::string& parts) {
  const ParsedRow parsed = ParseRow(RowWithParts(parts), 3, 7);
  EXPECT_TRUE(parsed.error) << parts;
  return parsed.error.value_or(RowError());
}

const std::string kText = R"({"type": "text", "text": "What is it?"})";

TEST(RowImagesTest, EverySpellingIsAPictureOfItsPath) {
  const struct {
    const char* part;
    const char* path;
    ImageDetail detail = ImageDetail::kAuto;
  } cases[] = {
      {R"({"type": "image_url", "image_url": {"url": "file:images/a.png"}})", "images/a.png"},
      {R"({"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}})", "a.png",
       ImageDetail::kLow},
      {R"({"type": "image_url", "image_url": {"url": "a.png", "detail": "high", "uuid": "7"}})",
       "a.png", ImageDetail::kHigh},
      {R"({"type": "image_url", "image_url": {"url": "a.png", "detail": null}})", "a.png"},
      {R"({"image_url": {"url": "a.png"}, "type": "image_url", "uuid": "7"})", "a.png"},
      {R"({"type": "image_url", "image_url": "dir/a b.png"})", "dir/a b.png"},
      {R"({"type": "input_image", "image_url": "a.png", "detail": "low"})", "a.png",
       ImageDetail::kLow},
      {R"({"type": "input_image", "image_url": "a.png", "file_id": null})", "a.png"},
      {R"({"type": "image", "image": "a.png"})", "a.png"},
      {R"({"type": "image", "url": "file:///data/a.png", "uuid": null})", "/data/a.png"},
      {R"({"type": "image", "path": "file:is-a-name"})", "file:is-a-name"},
      {R"({"type": "image", "image": "file:/data/a.png"})", "/data/a.png"},
      {R"({"type": "image", "image": "FILE://localhost/a%20b%25.png"})", "/a b%.png"},
      {R"({"type": "image", "image": "../a%20b.png"})", "../a%20b.png"},
  };
  for (const auto& test : cases) {
    const Row row = GoodParts(kText + ", " + test.part);
    ASSERT_EQ(row.images.size(), 1U) << test.part;
    EXPECT_EQ(row.images[0].path, test.path);
    EXPECT_EQ(row.images[0].name, test.path);
    EXPECT_EQ(row.images[0].bytes, nullptr);
    EXPECT_EQ(row.images[0].detail, test.detail) << test.part;
    EXPECT_EQ(row.images[0].message, 1U);
    EXPECT_EQ(row.images[0].field, "messages[1].content[1]");
    EXPECT_FALSE(row.images[0].is_users);
    EXPECT_EQ(row.messages.as_array()[1].Find("content")->Dump(),
              "[" + kText + R"(, {"type": "image"}])");
  }
}

TEST(RowImagesTest, BytesAreDecoded) {
  const std::string base64 = EncodeBase64("pixels");
  for (const std::string& part :
       {R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,)" + base64 + "\"}}",
        R"({"type": "input_image", "image_url": "DATA:Image/PNG;Base64,)" + base64 + "\"}",
        R"({"type": "image", "base64": ")" + base64 + "\"}",
        R"({"type": "image", "base64": "data:image/jpeg;base64,)" + base64 + "\"}",
        R"({"type": "image", "image": "data:;base64,)" + base64 + "\"}"}) {
    const Row row = GoodParts(part);
    ASSERT_EQ(row.images.size(), 1U) << part;
    ASSERT_NE(row.images[0].bytes, nullptr) << part;
    EXPECT_EQ(*row.images[0].bytes, "pixels");
    EXPECT_EQ(row.images[0].path, "");
    EXPECT_TRUE(row.images[0].name.ends_with(" of 6 bytes")) << row.images[0].name;
  }
}

TEST(RowImagesTest, RowsOfOtherFormatsHaveThemToo) {
  const std::string messages =
      R"("messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, )"
      R"({"type": "input_image", "image_url": "b.png"}, {"type": "image", "image": "c.png"}]}, )"
      R"({"role": "assistant", "content": "d"}, )"
      R"({"role": "user", "content": [{"type": "image", "image": "e.png"}]}])";
  const ParsedRow parsed =
      ParseRow(R"({"custom_id": "r", "method": "POST", "url": "/v1/chat/completions", "body": {)" +
                   messages + "}}",
               0, 1);
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  ASSERT_EQ(parsed.row.images.size(), 3U);
  EXPECT_EQ(parsed.row.images[1].path, "c.png");
  EXPECT_EQ(parsed.row.images[1].message, 0U);
  EXPECT_EQ(parsed.row.images[2].field, "messages[2].content[0]");
  EXPECT_EQ(parsed.row.messages.as_array()[0].Find("content")->Dump(),
            R"([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "image"}])");
}

TEST(RowImagesTest, WhatNamesNoPictureIsAnError) {
  const struct {
    std::string part;
    const char* message;  // behind the place
  } cases[] = {
      {R"({"type": "image_url"})",
       "must have a string, or an object with a url, as image_url (found null)"},
      {R"({"type": "image_url", "image_url": 3})",
       "must have a string, or an object with a url, as image_url (found 3)"},
      {R"({"type": "image_url", "image_url": {}})",
       "must have a string as image_url.url (found null)"},
      {R"({"type": "image_url", "image_url": {"url": ["a"]}})",
       "must have a string as image_url.url (found [\"a\"])"},
      {R"({"type": "image_url", "image_url": ""})", "names no file (found \"\")"},
      {R"({"type": "image_url", "image_url": "file:"})", "names no file (found \"\")"},
      {R"({"type": "image_url", "image_url": {"url": "a.png", "detail": "much"}})",
       "must have auto, low or high as detail (found \"much\")"},
      {R"({"type": "input_image", "file_id": "f-1"})",
       "names an uploaded file (found file_id \"f-1\"); give its bytes or its path"},
      {R"({"type": "image"})",
       "must have image, url, path or base64 (found {\"type\": \"image\"})"},
      {R"({"type": "image", "image": {}})", "must have a string as image (found {})"},
      {R"({"type": "image", "image": "a", "url": "b"})",
       "has both image and url; give the picture once"},
      {R"({"type": "image", "url": "S3://bucket/a.png"})",
       "names a picture by S3 (found S3://bucket/a.png); name a file, or an http:// or https:// "
       "URL, or give its bytes as a data: URI"},
      {R"({"type": "image", "image": "file://images/a.png"})",
       "names a file of another machine (found file://images/a.png); write file:///DIR/FILE, or "
       "file:DIR/FILE for a path from the folder of the rows' file"},
      {R"({"type": "image", "image": "file:a%2.png"})",
       "has a % without two hexadecimal digits (found file:a%2.png); write %25 for it"},
      {R"({"type": "image", "path": "a\u0000b"})",
       "names a file with a NUL character (found a\\x00b)"},
      {R"({"type": "image", "image": "file:a%00b"})",
       "names a file with a NUL character (found a\\x00b)"},
      {R"({"type": "image", "image": ")" + std::string(5000, 'A') + "\"}",
       "names a file by 5000 bytes, and a path has at most 4096; give bytes as a data: URI "
       "(data:image/png;base64,...)"},
      {R"({"type": "image", "image": "data:image/png,abc"})",
       "a data: URI of a picture begins with data:image/TYPE;base64, (found data:image/png)"},
      {R"({"type": "image", "image": "data:text/plain;base64,YQ=="})",
       "a data: URI of a picture begins with data:image/TYPE;base64, (found "
       "data:text/plain;base64)"},
      {R"({"type": "image", "image": "data:image/png;base64"})",
       "a data: URI of a picture begins with data:image/TYPE;base64, (found "
       "data:image/png;base64)"},
      {R"({"type": "image", "image": "data:image/png;base64,"})",
       "a data: URI must be base64 with its padding and without line breaks (found nothing)"},
      {R"({"type": "image", "image": "data:image/png;base64,YQ"})",
       "a data: URI must be base64 with its padding and without line breaks (found its length or "
       "its end, after 2 bytes)"},
      {R"({"type": "image", "image": "data:image/png;base64,YWJj\nYWJj"})",
       "a data: URI must be base64 with its padding and without line breaks (found \"\\n\" after 4 "
       "bytes)"},
      {R"({"type": "image", "base64": "YQ==YQ=="})",
       "base64 must be base64 with its padding and without line breaks (found \"=\" after 2 "
       "bytes)"},
      {R"({"type": "image", "base64": "YW\u00e9j"})",
       "base64 must be base64 with its padding and without line breaks (found \"\u00e9\" after 2 "
       "bytes)"},
  };
  for (const auto& test : cases) {
    const RowError error = BadParts(kText + ", " + test.part);
    EXPECT_EQ(error.code, "invalid_row");
    EXPECT_EQ(error.field, "messages[1].content[1]");
    EXPECT_EQ(error.message, std::string("messages[1].content[1]: ") + test.message);
  }
}

TEST(RowImagesTest, UnknownMembersAreNamed) {
  const std::string part = R"({"type": "image", "image": "a.png", "max_pixels": 9})";
  const RowError error = BadParts(part);
  EXPECT_EQ(error.code, "unsupported_field");
  EXPECT_EQ(error.message, "messages[1].content[0].max_pixels is not a known field of a picture");
  const Row row = GoodParts(part, /*lenient=*/true);
  EXPECT_EQ(row.images.size(), 1U);
  EXPECT_EQ(row.warnings.size(), 1U);
  EXPECT_EQ(BadParts(R"({"type": "image_url", "image_url": {"url": "a.png", "size": 1}})").message,
            "messages[1].content[0].image_url.size is not a known field of a picture");
}

TEST(RowImagesTest, OtherPartsAreRefusedAndPicturesAreCounted) {
  EXPECT_EQ(BadParts(R"({"type": "video_url", "video_url": {"url": "a.mp4"}})").message,
            "messages[1].content may hold only parts of type text and image_url (found a part of "
            "type video_url)");
  const std::string part = R"({"type": "image", "image": "a.png"})";
  std::string parts = part;
  for (size_t i = 1; i < kRowImagesMax; ++i) parts += ", " + part;
  EXPECT_EQ(GoodParts(parts).images.size(), kRowImagesMax);
  EXPECT_EQ(BadParts(parts + ", " + part).message,
            "messages[1].content[1000] is one picture too many: a row may have 1000");
}

}  // namespace
}  // namespace minisgl::batch
