// The options of pictures: which agree with each other and with a model.
#include "load/image_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "temporary_folder.h"
#include "text/image_test_util.h"

namespace minisgl::load {
namespace {

// Parses the options, and checks them for a model of pictures of 1 to 100 tokens.
Status Parse(const std::vector<std::string>& arguments, ImageOptions* options) {
  OptionTable table("test", "a test");
  AddImageOptions(&table, options, /*reads_rows=*/true);
  MINISGL_RETURN_IF_ERROR(table.Parse(arguments).status());
  return CheckImageOptions(*options, SmallQwen());
}

TEST(ImageOptionsTest, ValuesAreTaken) {
  ImageOptions options;
  EXPECT_TRUE(Parse({}, &options).ok());
  EXPECT_EQ(LimitsOf(options).pixels_max, PictureLimits().pixels_max);
  EXPECT_EQ(options.background, Background::kDrop);
  const TemporaryFolder folder;
  const Status status =
      Parse({"--image-root", folder.Path(""), "--max-image-pixels", "1000000", "--image-min-tokens",
             "4", "--image-max-tokens", "50", "--image-background", "white"},
            &options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(LimitsOf(options).pixels_max, 1000000U);
  EXPECT_EQ(options.tokens_min, 4);
  EXPECT_EQ(options.tokens_max, 50);
  EXPECT_EQ(options.background, Background::kWhite);
}

TEST(ImageOptionsTest, WhatContradictsIsRefused) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
    StatusCode code = StatusCode::kUsage;
  } cases[] = {
      {{"--image-min-tokens", "9", "--image-max-tokens", "8"},
       "--image-min-tokens is more than --image-max-tokens (found 9 and 8)"},
      {{"--image-root", "/no/such/folder"},
       "--image-root: /no/such/folder is no folder",
       StatusCode::kNoInput},
      {{"--image-root", "/etc/passwd"},
       "--image-root: /etc/passwd is no folder",
       StatusCode::kNoInput},
      {{"--image-min-tokens", "0"}, "--image-min-tokens"},
      {{"--image-max-tokens", "1048577"}, "--image-max-tokens"},
      {{"--max-image-pixels", "0"}, "--max-image-pixels"},
      {{"--image-background", "black"}, "--image-background"},
  };
  for (const auto& test : cases) {
    ImageOptions options;
    const Status status = Parse(test.arguments, &options);
    EXPECT_EQ(status.code(), test.code) << test.message;
    EXPECT_NE(status.message().find(test.message), std::string::npos) << status.message();
  }
}

// A model whose pictures all have as many tokens.
TEST(ImageOptionsTest, AModelThatCannotHaveSoFewTokensIsNamed) {
  TextModel text;
  ImageOptions options;
  options.tokens_max = 10;
  EXPECT_TRUE(CheckImageOptions(options, text).ok());  // it reads no pictures at all
  text.images.emplace();
  text.images->rules.size_rule = SizeRule::kFixed;
  text.images->rules.tokens_per_tile = 256;
  text.images->rules.processor = "Gemma3ImageProcessor";
  const Status status = CheckImageOptions(options, text);
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_TRUE(status.message().starts_with("--image-max-tokens: ")) << status.message();
  EXPECT_NE(status.message().find("Gemma3ImageProcessor"), std::string::npos);
  options.tokens_max = 256;
  EXPECT_TRUE(CheckImageOptions(options, text).ok());
}

}  // namespace
}  // namespace minisgl::load
