// What identifies the text of a grammar.
#pragma once

#include "minisgl/base/sha256.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

// Equal for equal texts of one kind, different for others.
Sha256::Digest DigestOf(const GrammarText& grammar);

}  // namespace minisgl
