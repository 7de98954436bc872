// Any text as a JSON schema.
#include <cstdint>
#include <string_view>

#include "grammar_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  minisgl::CheckGrammar({minisgl::GrammarKind::kJsonSchema, std::string(text), {}}, text);
  return 0;
}
