// JSON schemas as grammars.
//
// Drafts 2020-12, 2019-09, 7, 6 and 4, by `$schema`; without one 2020-12, where older keywords keep
// their meaning. References are followed inside the schema only. A keyword that constrains is
// enforced, or the schema is refused, naming it and its place as a JSON pointer. Names that no
// draft defines do not constrain; one that is nearly a keyword gives a warning (CompiledGrammar).
//
// Texts are JSON without blanks around the value. Members stand in the order of `properties`, then
// members in `required` alone, then all others, whose names may repeat. Strings spell a character
// in one way, control characters in several; no surrogates. Numbers have a bounded number of
// digits. `1.0` is an integer except in draft 4. Formats of the standard are asserted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

struct JsonSchemaOptions {
  // Spaces and tabs allowed wherever JSON lets blanks be within a value; or a space, two line
  // breaks and an indentation of up to 24. 1: at most one space. 0: no blanks. A schema whose root
  // has "x-guidance": {"whitespace_flexible": false} has at most one space.
  uint32_t blanks_max = 8;
  // Members may stand in any order instead of the schema's, in objects of at most 12 properties.
  bool any_order = false;
  // No string, and no name of a member, is spelled with this text in it; "": every text may be.
  std::string_view excluded = {};
};

// kBadInput names what is refused and where. Bounded work and memory for hostile schemas.
// Thread-safe.
Result<std::shared_ptr<const CompiledGrammar>> CompileJsonSchema(
    std::string_view schema, const JsonSchemaOptions& options = {},
    const GrammarLimits& limits = {});

// Returns `schema`, changed so that its texts have at most one space between their parts. A
// `schema` that is no JSON object is returned unchanged.
std::string CompactJsonSchema(std::string schema);

// Any JSON object.
Result<std::shared_ptr<const CompiledGrammar>> CompileJsonObject(
    const JsonSchemaOptions& options = {}, const GrammarLimits& limits = {});

}  // namespace minisgl
