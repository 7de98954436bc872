// The third stage of a prompt's way (conversation.h): a rendered prompt becomes token ids.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/render_prompt.h"
#include "minisgl/text/text_model.h"

namespace minisgl {

// Bounds on the work for a prompt that may be far too long.
struct EncodeBounds {
  std::optional<size_t> kept_max;  // ids that are kept, the last ones; unset: all
  // A text of more than 1 MiB is not encoded much further than this number of ids, unless its
  // conversation goes on; unset: each text is encoded to its end.
  std::optional<int64_t> counted_max;
  // Encoding ends soon after this becomes true, and its result is not the whole prompt; null: it
  // cannot be cancelled.
  const std::atomic<bool>* cancelled = nullptr;
};

struct EncodedPrompt {
  // All, or with kept_max the last ones: at least that many if there are, at most twice as many.
  std::vector<TokenId> ids;
  std::optional<TokenId> first;     // of all
  int64_t total = 0;                // number of all
  bool is_whole = true;             // if false, there may be more than `total`
  std::vector<PlacedImage> images;  // of a prompt that is kept whole
};

// Encodes `prompt`. A sampled answer that stands in the text is spliced in by its ids if the rest
// is then the same text, or from some control token on (a template that leaves out earlier
// reasoning). If the template rewrites earlier messages, the text is encoded as a whole. Control
// tokens count in message content if text.parse_special.
Result<EncodedPrompt> EncodePrompt(const TextModel& text, RenderedPrompt prompt,
                                   const EncodeBounds& bounds = {});

}  // namespace minisgl
