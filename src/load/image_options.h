// The options of pictures that commands share: where the pictures of rows may lie, how large they
// may be, and how many tokens of the prompt they take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "load/option_table.h"
#include "minisgl/base/status.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/text_model.h"

namespace minisgl::load {

inline constexpr Choice<Background> kBackgroundChoices[] = {{"drop", Background::kDrop},
                                                            {"white", Background::kWhite}};

struct ImageOptions {
  std::string root;                   // the folder of all pictures that rows name; "": any
  std::optional<int64_t> pixels_max;  // of a picture; unset: the default of PictureLimits
  std::optional<int32_t> tokens_min, tokens_max;  // of a picture; unset: the model's
  Background background = Background::kDrop;
  // Whether pictures of the network are fetched, and whether from private addresses too.
  bool fetches = false, fetches_private = false;
  // Fetches the file at an http:// or https:// URL, of at most `bytes_max` bytes, from a public
  // address alone if `is_public_only`. Given by the command; any thread.
  std::function<Result<std::string>(const std::string& url, uint64_t bytes_max,
                                    bool is_public_only)>
      fetch;
};

// Adds the options, without --image-root if `reads_rows` is false.
void AddImageOptions(OptionTable* app, ImageOptions* options, bool reads_rows);

// Adds --image, which names files of pictures.
TableOption* AddImageFiles(OptionTable* app, std::vector<std::string>* files,
                           const std::string& help);

// The limits of a picture with these options.
PictureLimits LimitsOf(const ImageOptions& options);

// Whether the options agree with each other and with the model: kUsage; kNoInput for the folder. A
// model without pictures agrees with all of them.
Status CheckImageOptions(const ImageOptions& options, const TextModel& text);

// kUsage if `files`, the values of --image, are not empty and the model reads no pictures.
Status CheckImageFiles(const std::vector<std::string>& files, const TextModel& text);

}  // namespace minisgl::load
