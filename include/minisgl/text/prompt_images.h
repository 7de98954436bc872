// Pictures of a prompt, from the template's placeholders to what the model reads in their places.
//
// A picture passes the stages of a prompt's way (conversation.h): its layout, which follows from
// its size alone, decides the text that stands in its placeholder's place before the text is
// encoded; its values are made after the prompt is found to be good.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"
#include "minisgl/plan/row_extras.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/picture.h"

namespace minisgl {

struct EncodedPrompt;
class PreparedPictures;
struct TextModel;

// A picture of a conversation: the next part {"type": "image"} of its messages.
struct ConversationImage {
  std::string name;                          // as errors name it
  std::shared_ptr<const std::string> bytes;  // of its file
  std::optional<int32_t> tokens_min, tokens_max;
  Background background = Background::kDrop;
  PictureLimits limits;
};

// The same after its placeholder is expanded.
struct LaidOutImage {
  ConversationImage image;
  ImageLayout layout;
};

// Tokens [token, token + count) of a prompt have the next `count` embeddings of the picture.
struct ImageRun {
  int64_t token = 0;
  int32_t count = 0;
};

// A picture in an encoded prompt.
struct PlacedImage {
  LaidOutImage laid_out;
  std::vector<ImageRun> runs;  // by token; their counts are layout.num_tokens together
};

// What a prompt with pictures brings beside its ids (Prompt of runtime.h).
struct PromptImages {
  std::shared_ptr<const RowExtras> extras;
  std::vector<KeyMark> marks;
};

// Decodes the pictures of `prompt` and makes their values: milliseconds for each, so this is for
// threads that prepare prompts, and for prompts that are found to be good. Equal pictures have
// equal hashes. They are prepared once in a prompt, and not at all if `known` (null: none) has
// them. Returns null extras and no marks for a prompt without pictures. Errors: those of
// PrepareImageFile with the picture's name, and those of CheckExtras (row_extras.h).
// REQUIRES a prompt that EncodePrompt made with `text`, with its ids as they were.
Result<PromptImages> MakePromptImages(const TextModel& text, const EncodedPrompt& prompt,
                                      PreparedPictures* known = nullptr);

}  // namespace minisgl
