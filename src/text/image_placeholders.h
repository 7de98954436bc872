// The placeholders of pictures in a rendered prompt, and what replaces them.
#pragma once

#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/text/image_text.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/render_prompt.h"

namespace minisgl::text {

// Replaces the placeholders in trusted text of `prompt` by the texts of `pictures`, one each, and
// moves its answers with the text. kBadInput: there are not as many placeholders as pictures, a
// picture is damaged or past a limit, or the text becomes longer than kTextBytesMax.
Status ExpandPlaceholders(const ImageText& images, std::vector<ConversationImage> pictures,
                          RenderedPrompt* prompt);

// Finds the tokens of the laid out pictures among the ids of the prompt, all of which belong to
// one. kBadInput: there are more or fewer.
Result<std::vector<PlacedImage>> FindImageRuns(const ImageText& images,
                                               const std::vector<TokenId>& ids,
                                               std::vector<LaidOutImage> pictures);

}  // namespace minisgl::text
