// Pictures that were prepared and are kept for prompts that have them again: rows with the same
// picture, turns of a chat. Preparing takes milliseconds, and values take megabytes.
//
// Thread-safe. All pictures are of one model.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>

#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/vision/image_content.h"
#include "minisgl/vision/image_rules.h"

namespace minisgl {

// What a tower reads of a picture, and what identifies it.
struct PreparedPicture {
  std::shared_ptr<const ImageContent> content;
  ContentHash hash{};
};

class PreparedPictures {
 public:
  // Keeps the last pictures, of at most `bytes_max` bytes of values and files. Prompts may hold
  // others.
  explicit PreparedPictures(uint64_t bytes_max = std::numeric_limits<uint64_t>::max())
      : bytes_max_(bytes_max) {}

  // The picture as `rules`, the model's, say, with the bounds and limits of `picture`;
  // `num_images`: the pictures of its prompt. Pictures with equal bytes have the same content, if
  // it is kept. Errors: those of WithTokenBounds and PrepareImageFile, with the picture's name.
  Result<PreparedPicture> Get(const ImageRules& rules, const ConversationImage& picture,
                              int num_images);

 private:
  struct Kept {
    ConversationImage picture;
    int num_images = 1;
    PreparedPicture prepared;
    uint64_t num_bytes = 0;
  };
  bool Find(const ConversationImage& picture, int num_images, PreparedPicture* prepared);
  void Keep(Kept kept);

  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the last used first; guarded by mutex_, like the next
  uint64_t num_bytes_ = 0;
};

}  // namespace minisgl
