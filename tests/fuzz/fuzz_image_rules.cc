// Any text as the files of a multimodal model: config.json, preprocessor_config.json and
// processor_config.json with "<file>" between them. Either refused with one readable line, or
// pictures of all shapes have layouts of bounded sizes, and small ones are prepared.
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/picture_check.h"
#include "minisgl/base/json.h"
#include "minisgl/vision/prepare_image.h"

namespace {

std::vector<minisgl::Json> FilesOf(std::string_view text) {
  constexpr std::string_view kSeparator = "<file>";
  std::vector<minisgl::Json> files(3);
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t end = text.find(kSeparator);
    auto json = minisgl::ParseJson(text.substr(0, end));
    if (json.ok()) files[i] = *std::move(json);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + kSeparator.size());
  }
  return files;
}

void UseRules(const minisgl::ImageRules& rules) {
  using namespace minisgl;
  for (const PictureSize size : {PictureSize{1, 1}, PictureSize{7, 3}, PictureSize{30, 1000},
                                 PictureSize{9459, 9459}, PictureSize{1, 200}}) {
    for (const int num_images : {1, 2}) {
      const auto layout = LayOutImage(rules, size, num_images);
      CheckPictureMessage(layout.status());
      if (!layout.ok()) continue;
      MINISGL_CHECK(layout->num_values >= 0 && layout->num_tokens >= 0, "negative counts");
      const double pixels = double{1} * layout->resized.width * layout->resized.height;
      constexpr double kPixelsMax = 1 << 14;
      if (size.height > 1000 || pixels > kPixelsMax || layout->num_values > kPixelsMax ||
          double{1} * layout->first.width * layout->first.height > kPixelsMax ||
          double{1} * layout->canvas.width * layout->canvas.height > kPixelsMax) {
        continue;
      }
      const size_t num_bytes =
          3 * static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
      const auto image =
          PrepareImage(rules, {size, std::vector<uint8_t>(num_bytes, 99)}, num_images);
      MINISGL_CHECK(image.ok(), "a layout without a picture");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto files = FilesOf({reinterpret_cast<const char*>(data), size});
  const auto rules = minisgl::ReadImageRules(files[0], files[1], files[2]);
  minisgl::CheckPictureMessage(rules.status());
  if (rules.ok()) UseRules(*rules);
  return 0;
}
