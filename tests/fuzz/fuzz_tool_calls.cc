// Any text as an answer in any dialect: it reads alike whole and in pieces, in steps that its
// length bounds, and arguments are JSON unless the dialect gives broken ones.
//
// The first byte chooses the dialect, the second one the size of the pieces.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/tool_calls.h"

namespace {

using namespace minisgl;

bool IsJsonText(std::string_view text) {
  JsonScanner scanner(text, kJsonDepthMax);
  while (scanner.Next()) {
    if (scanner.token() == JsonScanner::Token::kEnd) return true;
  }
  return false;
}

void Append(const ToolCallPiece& piece, ToolCallPiece* whole) {
  whole->reasoning += piece.reasoning;
  whole->content += piece.content;
  whole->calls.insert(whole->calls.end(), piece.calls.begin(), piece.calls.end());
}

void CheckCalls(ToolDialect dialect, const ToolCallPiece& piece) {
  MINISGL_CHECK(IsValidUtf8(piece.content), "content is not UTF-8");
  const bool gives_broken = dialect == ToolDialect::kMistral || dialect == ToolDialect::kHarmony;
  for (const ToolCall& call : piece.calls) {
    MINISGL_CHECK(!call.name.empty(), "a call without a name");
    MINISGL_CHECK(IsValidUtf8(call.name) && IsValidUtf8(call.id), "a name is not UTF-8");
    MINISGL_CHECK(gives_broken || IsJsonText(call.arguments), "{} is no JSON", call.arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const Json kTools = *ParseJson(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", )"
      R"("properties": {"s": {"type": "string"}, "i": {"type": ["integer", "null"]}, )"
      R"("o": {"anyOf": [{"type": "object"}, {"type": "string"}]}}}}}])");
  const auto names = ToolDialectNames();
  const ToolDialect dialect = names[data[0] % names.size()].dialect;
  const size_t piece_size = 1 + data[1];
  const std::string text = ReplaceInvalidUtf8({reinterpret_cast<const char*>(data + 2), size - 2});
  const ToolCallPiece whole = ReadToolCalls(dialect, kTools, text, {});
  CheckCalls(dialect, whole);
  ToolCallReader reader(dialect, kTools);
  ToolCallPiece joined;
  for (size_t at = 0; at < text.size(); at += piece_size) {
    Append(reader.Push(std::string_view(text).substr(at, piece_size), {}), &joined);
  }
  Append(reader.Finish(), &joined);
  MINISGL_CHECK(joined == whole, "pieces of {} read otherwise", piece_size);
  MINISGL_CHECK(reader.num_steps() <= 100 * text.size() + 200'000, "{} steps for {} bytes",
                reader.num_steps(), text.size());
  CheckCalls(dialect, ReadSpelledToolCalls(dialect, kTools, text));
  return 0;
}
