// Pictures from hostile hands: limits before memory is taken, files that are cut off, changed
// bytes, headers that promise too much. Each is an error of one line, or the right picture.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/vision/picture.h"
#include "vision/picture_container.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

const std::string kPictureFolder = MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/";

std::string Golden(const std::string& name) { return ReadAllBytes(kPictureFolder + name); }

// The names of the golden pictures that this build decodes.
std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kPictureFolder)) {
    const std::string name = entry.path().filename().string();
    const auto header = ReadPictureHeader(Golden(name));
    if (header.ok() && CanDecodePicture(header->kind)) names.push_back(name);
  }
  return names;
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// A golden PNG whose header has other sides. Its checksum is wrong then, which the limits precede.
std::string PngOfSize(uint32_t width, uint32_t height) {
  return Golden("png_2_8.png").replace(16, 8, BigEndian(width) + BigEndian(height));
}

void ExpectError(const std::string& bytes, const std::string& part,
                 const PictureLimits& limits = {}) {
  const auto picture = DecodePicture(bytes, limits);
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.status().code(), StatusCode::kBadInput);
  const std::string& message = picture.status().message();
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(Visible(message, message.size()), message);
}

TEST(HostilePictureTest, SizesAreCheckedBeforeDecoding) {
  ExpectError(PngOfSize(50000, 50000), "a PNG of 50000 x 50000 pixels; at most 89478485");
  ExpectError(PngOfSize(0xffffffff, 0xffffffff), "4294967295 x 4294967295 pixels; at most");
  ExpectError(PngOfSize(0x80000000, 1), "2147483648 x 1 pixels; at most");
  ExpectError(PngOfSize(0, 7), "a PNG of 0 x 7 pixels");
  ExpectError(PngOfSize(4001, 20), "the ratio of its sides may be at most 200");
  const auto header = ReadPictureHeader(PngOfSize(50000, 50000));
  EXPECT_FALSE(header.ok());
}

TEST(HostilePictureTest, LimitsAreTheCallers) {
  const std::string png = Golden("png_2_8.png");  // 13 x 9
  PictureLimits limits;
  limits.pixels_max = 13 * 9;
  limits.bytes_max = png.size();
  limits.sides_ratio_max = 1.5;
  EXPECT_TRUE(ReadPictureHeader(png, limits).ok());
  PictureLimits less = limits;
  less.pixels_max -= 1;
  ExpectError(png, "at most 116 pixels", less);
  less = limits;
  less.bytes_max -= 1;
  ExpectError(png, "bytes; at most", less);
  less = limits;
  less.sides_ratio_max = 1.4;
  ExpectError(png, "at most 1.4", less);
}

// A header within the limits over a few bytes of data takes no memory for its pixels.
TEST(HostilePictureTest, DataThatCannotFillThePictureAreCutOff) {
  if (!CanDecodePicture(PictureKind::kPng)) GTEST_SKIP() << "no PNG decoder";
  std::string png = PngOfSize(9000, 9000);
  png.replace(29, 4, BigEndian(0xe2b7e5ed));
  const auto picture = DecodePicture(png);
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.status().message(), "a damaged PNG: the file is cut off");
}

TEST(HostilePictureTest, OtherBytesAreNoPicture) {
  ExpectError("", "not a picture in PNG, JPEG, WebP or GIF");
  ExpectError("BM\n\x01", "it begins with \"BM");
  ExpectError("GIF89", "not a picture");
  ExpectError("GIF89a", "a GIF that ends in its header");
  ExpectError("\xff\xd8\xff", "a JPEG without a frame header");
  ExpectError(std::string("RIFF\0\0\0\0WEBP", 12), "a WebP without its header");
  ExpectError("\x89PNG\r\n\x1a\n", "a PNG without its header");
}

// A picture that is cut off never decodes to another picture: the error is certain, or all that
// decoding needs is there.
TEST(HostilePictureTest, CutOffFilesAreErrorsOrWhole) {
  const std::vector<std::string> names = GoldenNames();
  if (names.empty()) GTEST_SKIP() << "this build has no decoder of pictures";
  for (const std::string& name : names) {
    const std::string whole = Golden(name);
    const auto expected = DecodePicture(whole);
    ASSERT_TRUE(expected.ok()) << name << ": " << expected.status().message();
    int num_whole = 0;
    // Each length near the ends, and some of the others.
    for (size_t length = 0; length < whole.size();
         length += length < 64 || length + 64 > whole.size() ? 1 : 11) {
      // In memory of its own size, so that the address sanitizer sees reads behind it.
      const std::vector<char> bytes(whole.begin(), whole.begin() + static_cast<long>(length));
      const auto picture = DecodePicture({bytes.data(), bytes.size()});
      if (!picture.ok()) continue;
      ++num_whole;
      EXPECT_EQ(picture->rgb, expected->rgb) << name << " of " << length << " bytes";
    }
    // A PNG ends with 4 bytes of the last checksum of its data and 12 of an empty chunk, others
    // with markers of a byte or two. Only the first frame of a GIF is read.
    if (name != "gif_animated.gif") {
      EXPECT_LE(num_whole, 24) << name;
    }
  }
}

TEST(HostilePictureTest, ChangedBytesDoNoHarm) {
  PictureLimits limits;
  limits.pixels_max = 1 << 16;
  const std::vector<std::string> names = GoldenNames();
  if (names.empty()) GTEST_SKIP() << "this build has no decoder of pictures";
  for (const std::string& name : names) {
    const std::string whole = Golden(name);
    // All bytes of the headers, and some of the others (tests/fuzz changes all of them).
    for (size_t at = 0; at < whole.size(); at += at < 64 ? 1 : 7) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (at % 2 == 0 ? '\x01' : '\xff'));
      const auto picture = DecodePicture(bytes, limits, Background::kWhite);
      const auto header = ReadPictureHeader(bytes, limits);
      if (!picture.ok()) continue;
      ASSERT_TRUE(header.ok());
      EXPECT_EQ(header->size, picture->size) << name << " at " << at;
    }
  }
}

// Each scan costs a pass over the whole picture.
TEST(HostilePictureTest, ScansAreLimited) {
  if (!CanDecodePicture(PictureKind::kJpeg)) GTEST_SKIP() << "no JPEG decoder";
  const std::string whole = Golden("jpeg_420_progressive.jpg");
  const size_t scan = whole.rfind(std::string("\xff\xda", 2));
  const size_t end = whole.rfind(std::string("\xff\xd9", 2));
  ASSERT_LT(scan, end);
  std::string bytes = whole.substr(0, scan);
  for (int i = 0; i < 400; ++i) bytes += whole.substr(scan, end - scan);
  ExpectError(bytes + whole.substr(end), "it has too many scans");
}

TEST(HostilePictureTest, DamagedOrientationsAreUpright) {
  const auto exif = [](const std::string& text) { return vision::ExifOrientation(text); };
  const std::string entry("\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00", 12);
  const std::string head("II\x2a\x00\x08\x00\x00\x00\x01\x00", 10);
  EXPECT_EQ(exif(head + entry), 6);
  EXPECT_EQ(exif(std::string("Exif\0\0", 6) + head + entry), 6);
  EXPECT_EQ(exif(std::string("MM\x00\x2a\x00\x00\x00\x08\x00\x01", 10) +
                 std::string("\x01\x12\x00\x03\x00\x00\x00\x01\x00\x05\x00\x00", 12)),
            5);
  for (size_t length = 0; length < head.size() + entry.size(); ++length) {
    EXPECT_EQ(exif((head + entry).substr(0, length)), 1);
  }
  for (const char orientation : {'\x00', '\x09', '\xff'}) {
    std::string other = entry;
    other[8] = orientation;
    EXPECT_EQ(exif(head + other), 1);
  }
  EXPECT_EQ(exif(std::string("II\x2a\x00\xff\xff\xff\xff\x01\x00", 10) + entry), 1);
  EXPECT_EQ(exif(std::string("XX\x2a\x00\x08\x00\x00\x00\x01\x00", 10) + entry), 1);
}

// A kind without a decoder is refused by the name of the library; its size is read all the same.
TEST(HostilePictureTest, MissingDecodersAreNamed) {
  const std::vector<std::vector<std::string>> kinds = {{"png_2_8.png", "PNG", "libpng"},
                                                       {"jpeg_444.jpg", "JPEG", "libjpeg"},
                                                       {"webp_lossy.webp", "WebP", "libwebp"},
                                                       {"gif.gif", "GIF", "giflib"}};
  for (const auto& kind : kinds) {
    const auto header = ReadPictureHeader(Golden(kind[0]));
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(PictureKindName(header->kind), kind[1]);
    const auto picture = DecodePicture(Golden(kind[0]));
    EXPECT_EQ(picture.ok(), CanDecodePicture(header->kind));
    if (picture.ok()) continue;
    EXPECT_EQ(picture.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(picture.status().message(), "this build has no " + kind[1] + " decoder (" + kind[2] +
                                              "); convert the picture to another format");
  }
}

}  // namespace
}  // namespace minisgl
