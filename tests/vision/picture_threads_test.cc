// Pictures are decoded and prepared by several threads at once, with the results of one.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "minisgl/vision/prepare_image.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

TEST(PictureThreadsTest, ThreadsShareNothing) {
  const std::string folder = MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/";
  std::vector<std::string> files;
  for (const char* name :
       {"png_2_8.png", "jpeg_420_progressive.jpg", "webp_lossy.webp", "gif.gif"}) {
    const std::string bytes = ReadAllBytes(folder + name);
    const auto header = ReadPictureHeader(bytes);
    ASSERT_TRUE(header.ok()) << name;
    if (CanDecodePicture(header->kind)) files.push_back(bytes);
  }
  if (files.empty()) GTEST_SKIP() << "this build has no decoder of pictures";
  auto config = ParseJson(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  ASSERT_TRUE(config.ok());
  const auto rules = ReadImageRules(Json(), *config, Json());
  ASSERT_TRUE(rules.ok());
  const auto prepare_all = [&] {
    std::vector<float> values;
    for (const std::string& file : files) {
      const auto image = PrepareImageFile(*rules, file);
      EXPECT_TRUE(image.ok()) << image.status().message();
      if (image.ok()) values.insert(values.end(), image->values.begin(), image->values.end());
    }
    return values;
  };
  const std::vector<float> expected = prepare_all();
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& values : found) {
    threads.emplace_back([&values, &prepare_all] { values = prepare_all(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& values : found) EXPECT_EQ(values, expected);
}

}  // namespace
}  // namespace minisgl
