// JSON as a grammar, for tests.
#pragma once

#include <memory>

#include "minisgl/grammar/grammar.h"

namespace minisgl {

// Any JSON value; strings of at most `string_max` characters.
std::shared_ptr<const CompiledGrammar> JsonGrammar(uint32_t string_max = GrammarBuilder::kUnbounded,
                                                   const GrammarLimits& limits = {});

}  // namespace minisgl
