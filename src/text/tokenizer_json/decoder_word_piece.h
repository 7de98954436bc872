// The decoder of WordPiece models: pieces that go on with a word lose their prefix, others stand
// behind a space.
#pragma once

#include <memory>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/decoder.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

Result<std::unique_ptr<const SpellingDecoder::Kind>> ReadWordPieceDecoder(const JsonPlace& place);

}  // namespace minisgl::text
