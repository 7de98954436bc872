#include "json_schema_cases.h"

#include <gtest/gtest.h>

#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"

namespace minisgl {

void CheckJsonSchemaCases(const std::vector<JsonSchemaCase>& cases) {
  for (const JsonSchemaCase& one : cases) {
    const auto grammar = CompileJsonSchema(one.schema);
    ASSERT_TRUE(grammar.ok()) << one.schema << ": " << grammar.status().message();
    for (const bool wanted : {true, false}) {
      for (const std::string& text : wanted ? one.accepted : one.rejected) {
        bool accepted = false;
        const size_t length = MatchText(**grammar, text, &accepted);
        EXPECT_EQ(accepted, wanted) << one.schema << "\n  " << text << "\n  up to byte " << length;
      }
    }
  }
}

std::string JsonSchemaRefusal(std::string_view schema) {
  const auto grammar = CompileJsonSchema(schema);
  return grammar.ok() ? "" : grammar.status().message();
}

}  // namespace minisgl
