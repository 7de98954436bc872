// Schemas with the texts that they accept and those that they do not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

struct JsonSchemaCase {
  const char* schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

// Fails the test for each text that is judged wrongly, and for a schema that does not compile.
void CheckJsonSchemaCases(const std::vector<JsonSchemaCase>& cases);

// Why `schema` is refused; "" if it compiles.
std::string JsonSchemaRefusal(std::string_view schema);

}  // namespace minisgl
