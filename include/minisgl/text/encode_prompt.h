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
  // Ids that are kept, the last ones; unset: all. A prompt with pictures keeps all.
  std::optional<size_t> kept_max;
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
  std::optional<TokenId> first;  // of all
  int64_t total = 0;             // number of all
  bool is_whole = true;          // if false, there may be more than `total`
  // By token; empty if the prompt is not whole. Places count from the first of all ids: a caller
  // that cuts the ids of a prompt with pictures refuses it.
  std::vector<PlacedImage> images;
};

// Encodes `prompt`. A sampled answer that stands in the text is spliced in by its ids if the rest
// is then the same text, or from some control token on (a template that leaves out earlier
// reasoning). If the template rewrites earlier messages, the text is encoded as a whole. Control
// tokens count in message content if text.parse_special. kBadInput: the ids have not as many tokens
// of pictures as the pictures have embeddings.
Result<EncodedPrompt> EncodePrompt(const TextModel& text, RenderedPrompt prompt,
                                   const EncodeBounds& bounds = {});

}  // namespace minisgl
