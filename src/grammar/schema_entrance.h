// Adds the grammar of a JSON schema to one that is being built.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/grammar/json_schema.h"

namespace minisgl::grammar {

inline constexpr std::string_view kJsonObjectSchema = R"({"type": "object"})";

// Returns the symbol of its texts. Errors as CompileJsonSchema; sets `*warnings`.
Result<Symbol> AddJsonSchema(std::string_view schema, const JsonSchemaOptions& options,
                             GrammarBuilder* builder, std::vector<std::string>* warnings);

// `status`, of compiling `schema`, with the place if it says that no text matches.
Status WithEmptyPlace(std::string_view schema, const GrammarLimits& limits, const Status& status);

}  // namespace minisgl::grammar
