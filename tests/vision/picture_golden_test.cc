// Pictures of golden/pictures decode to what Pillow makes of them (make_picture_goldens.py).
#include <gtest/gtest.h>

#include <string>

#include "minisgl/vision/picture.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

const std::string kGoldenFolder = MINISGL_SOURCE_DIR "/tests/vision/golden/";

PictureKind KindByName(const std::string& file) {
  if (file.ends_with(".png")) return PictureKind::kPng;
  if (file.ends_with(".jpg")) return PictureKind::kJpeg;
  return file.ends_with(".gif") ? PictureKind::kGif : PictureKind::kWebp;
}

void ExpectPicture(const Json& golden, const std::string& bytes, Background background) {
  const auto picture = DecodePicture(bytes, {}, background);
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  const Json::Array& size = golden.Find("size")->as_array();
  EXPECT_EQ(picture->size.width, size[0].as_int());
  EXPECT_EQ(picture->size.height, size[1].as_int());
  const char* const key = background == Background::kDrop ? "drop" : "white";
  const std::string_view rgb(reinterpret_cast<const char*>(picture->rgb.data()),
                             picture->rgb.size());
  EXPECT_EQ(HashOf(rgb), golden.Find(key)->as_string());
}

TEST(PictureGoldenTest, EachPictureHasTheBytesOfPillow) {
  const Json goldens = ReadJsonFile(kGoldenFolder + "pictures.json");
  ASSERT_GT(goldens.as_array().size(), 60u);
  size_t num_decoded = 0;
  for (const Json& golden : goldens.as_array()) {
    const std::string& file = golden.Find("file")->as_string();
    SCOPED_TRACE(file);
    if (!CanDecodePicture(KindByName(file))) continue;
    const std::string bytes = ReadAllBytes(kGoldenFolder + "pictures/" + file);
    ExpectPicture(golden, bytes, Background::kDrop);
    ExpectPicture(golden, bytes, Background::kWhite);
    ++num_decoded;
  }
  if (num_decoded == 0) GTEST_SKIP() << "this build has no decoder of pictures";
}

// The headers alone say what is decoded, also of kinds that a build cannot decode.
TEST(PictureGoldenTest, TheHeaderHasTheKindAndTheSizeAsDisplayed) {
  const Json goldens = ReadJsonFile(kGoldenFolder + "pictures.json");
  for (const Json& golden : goldens.as_array()) {
    const std::string& file = golden.Find("file")->as_string();
    SCOPED_TRACE(file);
    const auto header = ReadPictureHeader(ReadAllBytes(kGoldenFolder + "pictures/" + file));
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->kind, KindByName(file));
    const Json::Array& size = golden.Find("size")->as_array();
    EXPECT_EQ(header->size.width, size[0].as_int());
    EXPECT_EQ(header->size.height, size[1].as_int());
  }
}

TEST(PictureGoldenTest, EachOrientationIsRead) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = "pictures/jpeg_orientation_" + std::to_string(orientation) + ".jpg";
    const auto header = ReadPictureHeader(ReadAllBytes(kGoldenFolder + file));
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->orientation, orientation);
  }
}

}  // namespace
}  // namespace minisgl
