// Encoding of text in the middle of a prompt or an answer.
#pragma once

#include <optional>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

// Returns the ids of `pieces` that follow the control token `marker`, if there is one. They are
// encoded with its spelling before them, so that no tokenizer treats them as the beginning of a
// text.
Result<std::vector<TokenId>> EncodeAfter(const Tokenizer& tokenizer, std::optional<TokenId> marker,
                                         std::vector<TextPiece> pieces);

}  // namespace minisgl
