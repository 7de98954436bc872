// Splices the sampled ids of answers into the text of a conversation, as it is encoded.
//
// If the text has an answer's own text where the answer began, its ids replace that part. A
// template that leaves out earlier reasoning continues there with only the end of the answer, from
// the control token that begins that end. The texts between answers, and their cuts, are then the
// same in every later turn, and so are the ids before them.
#pragma once

#include <span>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "minisgl/text/render_prompt.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::text {

// Removes the answers in which `id` was sampled: they are encoded as text.
void DropAnswersWith(TokenId id, std::vector<RenderedAnswer>* answers);

// Returns the ids of `pieces`, with the ids of those `answers` that stand in their text. Whatever
// is spliced, the ids spell the same text.
Result<std::vector<TokenId>> EncodeSpliced(const Tokenizer& tokenizer,
                                           const std::vector<TextPiece>& pieces,
                                           std::span<const RenderedAnswer> answers);

}  // namespace minisgl::text
