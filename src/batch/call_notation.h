// How the dialects of calls are written, as grammars take it.
//
// Thread-safe (no state).
#pragma once

#include <optional>

#include "minisgl/grammar/call_grammar.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::batch {

// Returns the notation of `dialect`, with its marks as the vocabulary has them. Nothing for a
// dialect in which calls cannot be forced.
std::optional<CallNotation> NotationOf(ToolDialect dialect, const Tokenizer& tokenizer);

}  // namespace minisgl::batch
