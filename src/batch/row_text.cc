#include "batch/row_text.h"

#include <algorithm>

#include "minisgl/base/check.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

// Upper bound on a valid id: each of its bytes may be an escape of six.
constexpr size_t kRawIdBytesMax = 6 * 4096 + 2;

std::string_view WithoutMark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

// Moves to the value of the key `name` in the object that begins at the scanner's token. Returns
// false if there is none.
bool GoToKey(JsonScanner* scanner, std::string_view name) {
  std::string_view passed;
  while (scanner->Next() && scanner->token() == JsonScanner::Token::kKey) {
    if (UnquoteJson(scanner->raw()) == name) return true;
    if (!scanner->SkipValue(&passed)) return false;
  }
  return false;
}

std::string_view ValidBeginning(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = Utf8CharLength(text.substr(end));
    if (length == 0) break;
    end += length;
  }
  return text.substr(0, end);
}

// If a member appears twice, the first counts.
void TakeFirst(std::string_view raw, Json* value) {
  if (!value->is_null() || raw.size() > kRawIdBytesMax) return;
  if (Result<Json> json = ParseJson(raw); json.ok()) *value = std::move(json).value();
}

}  // namespace

std::string RawValue(std::string_view text, std::string_view path) {
  JsonScanner scanner(WithoutMark(text), kJsonDepthMax);
  bool found = true;
  while (found && !path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    found = scanner.Next() && GoToKey(&scanner, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  std::string_view raw;
  MINISGL_CHECK(found && scanner.SkipValue(&raw), "a row without a value that it has");
  std::string line(raw);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

RowBeginning ReadRowBeginning(std::string_view text) {
  RowBeginning row;
  JsonScanner scanner(ValidBeginning(WithoutMark(text)), kJsonDepthMax);
  if (!scanner.Next() || scanner.token() != JsonScanner::Token::kBeginObject) return row;
  while (scanner.Next() && scanner.token() == JsonScanner::Token::kKey) {
    const std::string key = UnquoteJson(scanner.raw());
    row.has_frame = row.has_frame || key == "body" || key == "url" || key == "method";
    std::string_view raw;
    if (!scanner.SkipValue(&raw)) break;
    if (key == "id") TakeFirst(raw, &row.id);
    if (key == "custom_id") TakeFirst(raw, &row.custom_id);
    if (key == "url") TakeFirst(raw, &row.url);
    if (key == "session") TakeFirst(raw, &row.session);
  }
  return row;
}

}  // namespace minisgl::batch
