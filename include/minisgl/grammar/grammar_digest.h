// An identity for the text of a grammar. Thread-safe (no state).
#pragma once

#include "minisgl/base/sha256.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

// Returns equal digests for equal texts of one kind, and different ones for others.
Sha256::Digest DigestOf(const GrammarText& grammar);

}  // namespace minisgl
