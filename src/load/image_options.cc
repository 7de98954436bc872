#include "load/image_options.h"

#include <filesystem>
#include <system_error>

#include "load/options.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/image_rules.h"

namespace minisgl::load {
namespace {

constexpr int64_t kPixelsMax = int64_t{1} << 31;
constexpr int64_t kTokensMax = 1 << 20;  // as in WithTokenBounds

}  // namespace

void AddImageOptions(OptionTable* app, ImageOptions* options, bool reads_rows) {
  const std::string group = "Pictures";
  if (reads_rows) {
    app->Add("--image-root", &options->root,
             "Read pictures that rows name only from the folder DIR and those in it")
        ->Check(CheckNotEmpty)
        ->TypeName("DIR")
        ->Group(group)
        ->Advanced();
  }
  app->AddFlag("--fetch-images", &options->fetches,
               "Fetch pictures that are named by http:// and https:// URLs, from public addresses")
      ->Group(group)
      ->Advanced();
  app->AddFlag("--fetch-private-images", &options->fetches_private,
               "Fetch them from any address, by the proxy that the environment names")
      ->Group(group)
      ->Advanced();
  app->Add("--max-image-pixels", &options->pixels_max,
           "Refuse pictures of more than N pixels (default 89478485)")
      ->Check(IntegerIn(1, kPixelsMax))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->Add("--image-min-tokens", &options->tokens_min,
           "Enlarge pictures that would have fewer than N tokens (small text needs about 1024)")
      ->Check(IntegerIn(1, kTokensMax))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->Add("--image-max-tokens", &options->tokens_max,
           "Shrink pictures that would have more than N tokens")
      ->Check(IntegerIn(1, kTokensMax))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--image-background", &options->background, kBackgroundChoices,
                 "What is behind transparency: drop, the colours under it, or white (default drop)")
      ->TypeName("KIND")
      ->Group(group)
      ->Advanced();
}

TableOption* AddImageFiles(OptionTable* app, std::vector<std::string>* files,
                           const std::string& help) {
  return app->Add("--image", files, help)->Check(CheckNotEmpty)->OneValueEach()->TypeName("FILE");
}

PictureLimits LimitsOf(const ImageOptions& options) {
  PictureLimits limits;
  if (options.pixels_max) limits.pixels_max = static_cast<uint64_t>(*options.pixels_max);
  return limits;
}

Status CheckImageOptions(const ImageOptions& options, const TextModel& text) {
  if (options.tokens_min && options.tokens_max && *options.tokens_min > *options.tokens_max) {
    return UsageError("--image-min-tokens is more than --image-max-tokens (found {} and {})",
                      *options.tokens_min, *options.tokens_max);
  }
  std::error_code error;
  if (!options.root.empty() && !std::filesystem::is_directory(options.root, error)) {
    return MakeStatus(StatusCode::kNoInput, "--image-root: {} is no folder",
                      Visible(options.root, 400));
  }
  if (!text.images) return Status();
  return WithTokenBounds(text.images->rules, options.tokens_min, options.tokens_max)
      .status()
      .WithPrefix(options.tokens_min ? "--image-min-tokens" : "--image-max-tokens");
}

Status CheckImageFiles(const std::vector<std::string>& files, const TextModel& text) {
  if (files.empty() || text.images) return Status();
  return UsageError("--image: {}", text.images_status.ok() ? "the model reads no images"
                                                           : text.images_status.message());
}

}  // namespace minisgl::load
