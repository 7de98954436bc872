#include "minisgl/grammar/json_schema.h"

#include <algorithm>

#include "grammar/json_schema/document.h"
#include "grammar/json_schema/emitter.h"
#include "grammar/json_schema/schema_compiler.h"
#include "grammar/rules.h"
#include "grammar/schema_entrance.h"

namespace minisgl {
namespace {

constexpr size_t kSchemaBytesMax = size_t{8} << 20;

// True if the root says, in a member that other engines know, that blanks are not free.
bool IsCompact(const grammar::SchemaValue& root) {
  const grammar::SchemaValue* const guidance = root.Find("x-guidance");
  const grammar::SchemaValue* const flexible =
      guidance == nullptr ? nullptr : guidance->Find("whitespace_flexible");
  return flexible != nullptr && flexible->is_bool() && !flexible->is_true();
}

}  // namespace

namespace grammar {

Result<Symbol> AddJsonSchema(std::string_view schema, const JsonSchemaOptions& options,
                             GrammarBuilder* builder, std::vector<std::string>* warnings) {
  if (schema.size() > kSchemaBytesMax)
    return BadInput("the schema has more than {} MiB", kSchemaBytesMax >> 20);
  MINISGL_ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::Parse(schema));
  SchemaCompiler compiler(document, builder->expressions(), {});
  JsonSchemaOptions own = options;
  if (IsCompact(document.root())) own.blanks_max = std::min<uint32_t>(own.blanks_max, 1);
  Emitter emitter(compiler.algebra(), *builder, own);
  const Symbol start = emitter.Emit(compiler.Root());
  MINISGL_RETURN_IF_ERROR(compiler.algebra().status());
  MINISGL_RETURN_IF_ERROR(builder->status());
  *warnings = document.warnings();
  return start;
}

Status WithEmptyPlace(std::string_view schema, const GrammarLimits& limits, const Status& status) {
  if (status.message() != kNothingMatches) return status;
  const Result<SchemaDocument> document = SchemaDocument::Parse(schema);
  if (!document.ok()) return status;
  ExpressionSet expressions(limits.expressions);
  SchemaCompiler compiler(*document, expressions, {});
  if (!compiler.algebra().IsEmpty(compiler.Root()) || !compiler.algebra().ok()) return status;
  return BadInput("{}: {}", compiler.EmptyPlace().Pointer(), kNothingMatches);
}

}  // namespace grammar

std::string CompactJsonSchema(std::string schema) {
  const auto root = grammar::ParseSchemaValue(schema);
  if (!root.ok() || !(*root)->is_object() || (*root)->Find("x-guidance") != nullptr) return schema;
  const char* const comma = (*root)->members.empty() ? "" : ",";
  // Insert at the end, so that places in messages still refer to the user's text.
  schema.insert(schema.rfind('}'),
                std::string(comma) + R"("x-guidance":{"whitespace_flexible":false})");
  return schema;
}

Result<std::shared_ptr<const CompiledGrammar>> CompileJsonSchema(std::string_view schema,
                                                                 const JsonSchemaOptions& options,
                                                                 const GrammarLimits& limits) {
  GrammarBuilder builder(limits);
  std::vector<std::string> warnings;
  MINISGL_ASSIGN_OR_RETURN(const Symbol start,
                           grammar::AddJsonSchema(schema, options, &builder, &warnings));
  auto compiled = CompiledGrammar::Build(std::move(builder), start, std::move(warnings));
  if (!compiled.ok()) return grammar::WithEmptyPlace(schema, limits, compiled.status());
  return compiled;
}

Result<std::shared_ptr<const CompiledGrammar>> CompileJsonObject(const JsonSchemaOptions& options,
                                                                 const GrammarLimits& limits) {
  return CompileJsonSchema(grammar::kJsonObjectSchema, options, limits);
}

}  // namespace minisgl
