// Pictures that are kept after they were prepared: which are the same, and how many are kept.
#include "minisgl/text/prepared_pictures.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "image_test_util.h"

namespace minisgl {
namespace {

ConversationImage Golden(const std::string& name) {
  return PictureOf(ReadBytes(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/" + name), name);
}

TEST(PreparedPicturesTest, EqualPicturesAreOne) {
  const TextModel text = SmallQwen();
  PreparedPictures pictures;
  const auto get = [&](const ConversationImage& picture, int num_images = 1) {
    auto prepared = pictures.Get(text.images->rules, picture, num_images);
    EXPECT_TRUE(prepared.ok()) << prepared.status().message();
    return prepared.ok() ? *prepared : PreparedPicture();
  };
  const ConversationImage picture = Golden("png_2_8.png");
  const PreparedPicture first = get(picture);
  // Other bytes in memory, and another name.
  EXPECT_EQ(get(PictureOf(*picture.bytes, "another")).content, first.content);
  EXPECT_EQ(get(picture).hash, first.hash);
  // Other rules, other values.
  ConversationImage small = picture;
  small.tokens_max = 1;
  EXPECT_NE(get(small).content, first.content);
  ConversationImage white = picture;
  white.background = Background::kWhite;
  EXPECT_NE(get(white).content, first.content);
  EXPECT_EQ(get(white).hash, first.hash);  // it has no transparency
  EXPECT_NE(get(picture, 2).content, first.content);
  EXPECT_NE(get(Golden("png_0_8.png")).hash, first.hash);
  EXPECT_EQ(get(picture).content, first.content);
}

TEST(PreparedPicturesTest, TheLastUsedAreKeptWithinABound) {
  const TextModel text = SmallQwen();
  std::vector<ConversationImage> pictures;
  uint64_t largest = 0;
  for (const char* name : {"png_0_8.png", "png_2_8.png", "png_4_8.png", "png_6_8.png"}) {
    pictures.push_back(Golden(name));
    PreparedPictures alone;
    const auto prepared = alone.Get(text.images->rules, pictures.back(), 1);
    ASSERT_TRUE(prepared.ok());
    largest = std::max<uint64_t>(largest, prepared->content->image.values.size() * sizeof(float) +
                                              pictures.back().bytes->size());
  }
  PreparedPictures kept(3 * largest);
  const auto get = [&](size_t index) {
    return kept.Get(text.images->rules, pictures[index], 1)->content;
  };
  const auto zero = get(0), one = get(1), two = get(2);
  EXPECT_EQ(get(0), zero);
  get(3);  // in place of 1, which was not used for longest
  EXPECT_EQ(get(0), zero);
  EXPECT_EQ(get(2), two);
  EXPECT_NE(get(1), one);
  PreparedPictures none(1);
  EXPECT_NE(none.Get(text.images->rules, pictures[0], 1)->content,
            none.Get(text.images->rules, pictures[0], 1)->content);
}

TEST(PreparedPicturesTest, AFaultIsNotKept) {
  const TextModel text = SmallQwen();
  PreparedPictures pictures;
  const ConversationImage cut = PictureOf(Golden("png_2_8.png").bytes->substr(0, 60), "cut.png");
  for (int time = 0; time < 2; ++time) {
    const auto prepared = pictures.Get(text.images->rules, cut, 1);
    ASSERT_FALSE(prepared.ok());
    EXPECT_TRUE(prepared.status().message().starts_with("cut.png: "));
  }
}

}  // namespace
}  // namespace minisgl
