#include "minisgl/grammar/json_schema.h"

#include "grammar/json_schema/document.h"
#include "grammar/json_schema/emitter.h"
#include "grammar/json_schema/schema_compiler.h"

namespace minisgl {
namespace {

constexpr size_t kSchemaBytesMax = size_t{8} << 20;

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> CompileJsonSchema(std::string_view schema,
                                                                 const JsonSchemaOptions& options,
                                                                 const GrammarLimits& limits) {
  if (schema.size() > kSchemaBytesMax)
    return BadInput("the schema has more than {} MiB", kSchemaBytesMax >> 20);
  MINISGL_ASSIGN_OR_RETURN(const grammar::SchemaDocument document,
                           grammar::SchemaDocument::Parse(schema));
  GrammarBuilder builder(limits);
  grammar::SchemaCompiler compiler(document, builder.expressions(), {});
  grammar::Emitter emitter(compiler.algebra(), builder, options);
  const Symbol start = emitter.Emit(compiler.Root());
  MINISGL_RETURN_IF_ERROR(compiler.algebra().status());
  MINISGL_RETURN_IF_ERROR(builder.status());
  return CompiledGrammar::Build(std::move(builder), start, document.warnings());
}

Result<std::shared_ptr<const CompiledGrammar>> CompileJsonObject(const JsonSchemaOptions& options,
                                                                 const GrammarLimits& limits) {
  return CompileJsonSchema(R"({"type": "object"})", options, limits);
}

}  // namespace minisgl
