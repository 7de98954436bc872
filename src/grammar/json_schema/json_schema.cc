#include "minisgl/grammar/json_schema.h"

#include "grammar/json_schema/document.h"
#include "grammar/json_schema/emitter.h"
#include "grammar/json_schema/schema_compiler.h"
#include "grammar/rules.h"
#include "grammar/schema_entrance.h"

namespace minisgl {
namespace {

constexpr size_t kSchemaBytesMax = size_t{8} << 20;

}  // namespace

namespace grammar {

Result<Symbol> AddJsonSchema(std::string_view schema, const JsonSchemaOptions& options,
                             GrammarBuilder* builder, std::vector<std::string>* warnings) {
  if (schema.size() > kSchemaBytesMax)
    return BadInput("the schema has more than {} MiB", kSchemaBytesMax >> 20);
  MINISGL_ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::Parse(schema));
  SchemaCompiler compiler(document, builder->expressions(), {});
  Emitter emitter(compiler.algebra(), *builder, options);
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
