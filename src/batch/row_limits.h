// The fields of a row that limit which tokens its answers may have: allowed_token_ids and
// bad_words.
#pragma once

#include <optional>

#include "batch/row.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/text_model.h"

namespace minisgl::batch {

// Sets the limits of `prompt`. A word is banned as the tokens that spell it, with and without a
// space before it. invalid_row if they leave no token for an answer to begin with. If nothing in
// `prompt`, which has all else already, can end an answer before the context does, the row gets a
// warning.
std::optional<RowError> SetTokenLimits(const TextModel& text, Row* row, Prompt* prompt);

}  // namespace minisgl::batch
