// Pixel values of synthetic pictures, with the rules of published models, are the reference's
// (make_pixel_goldens.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/vision/prepare_image.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

// The picture of make_pixel_goldens.py.
Picture SyntheticPicture(PictureSize size) {
  Picture picture = {size, {}};
  for (int32_t y = 0; y < size.height; ++y) {
    for (int32_t x = 0; x < size.width; ++x) {
      for (int32_t c = 0; c < 3; ++c) {
        const int32_t level = 7 * x + 13 * y + 29 * c + x * y / 16 + 3 * ((x ^ y) & 31);
        picture.rgb.push_back(static_cast<uint8_t>(level & 255));
      }
    }
  }
  return picture;
}

void CheckGolden(const ImageRules& rules, const Json& golden, int num_images) {
  const Json::Array& sides = golden.Find("size")->as_array();
  const PictureSize size = {static_cast<int32_t>(sides[0].as_int()),
                            static_cast<int32_t>(sides[1].as_int())};
  SCOPED_TRACE(std::to_string(size.width) + " x " + std::to_string(size.height));
  const auto image = PrepareImage(rules, SyntheticPicture(size), num_images);
  ASSERT_TRUE(image.ok()) << image.status().message();
  std::vector<int64_t> shape;
  for (const Json& extent : golden.Find("shape")->as_array()) shape.push_back(extent.as_int());
  EXPECT_EQ(image->layout.shape, shape);
  EXPECT_EQ(image->layout.num_tokens, golden.Find("num_tokens")->as_int());
  EXPECT_EQ(HashOfFloats(image->values), golden.Find("sha256")->as_string());
  const auto planned = LayOutImage(rules, size, num_images);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  EXPECT_EQ(planned->num_tokens, image->layout.num_tokens);
}

class PixelValuesTest : public testing::TestWithParam<size_t> {};

constexpr size_t kNumCases = 14;

TEST_P(PixelValuesTest, PublishedRulesGiveTheReferencesValues) {
  const Json cases = ReadJsonFile(MINISGL_SOURCE_DIR "/tests/vision/golden/pixel_values.json");
  ASSERT_EQ(cases.as_array().size(), kNumCases);
  const Json& one = cases.as_array()[GetParam()];
  SCOPED_TRACE(one.Find("name")->as_string());
  const auto rules =
      ReadImageRules(*one.Find("config"), *one.Find("preprocessor"), *one.Find("processor"));
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  for (const Json& golden : one.Find("goldens")->as_array()) {
    CheckGolden(*rules, golden, static_cast<int>(one.Find("num_images")->as_int()));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PixelValuesTest, testing::Range(size_t{0}, kNumCases));

}  // namespace
}  // namespace minisgl
