// Any text as a regular expression, for the whole text and as a search.
#include <cstdint>
#include <string_view>

#include "grammar/regular_expression.h"
#include "grammar_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckGrammar({GrammarKind::kRegularExpression, std::string(text), {}}, text);
  ExpressionLimits limits;
  limits.nodes_max = 50'000;
  limits.operands_max = 200'000;
  ExpressionSet set(limits);
  grammar::RegularExpressionOptions options;
  options.search = true;
  const auto search = grammar::ParseRegularExpression(text, options, set);
  if (search.ok()) set.Matches(*search, text.substr(0, 100));
  return 0;
}
