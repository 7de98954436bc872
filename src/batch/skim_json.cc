#include "batch/skim_json.h"

#include <string>
#include <utility>

#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

class Skimmer {
 public:
  // Reads the members of an object.
  Result<Json> Read(std::string_view text, int depth_max) {
    Json object = Json(Json::Object());
    JsonScanner scanner(text, depth_max);
    bool more = scanner.Next();
    while (more && (more = scanner.Next()) && scanner.token() == JsonScanner::Token::kKey) {
      const std::string_view key = scanner.raw();
      std::string_view raw;
      if (!scanner.SkipValue(&raw)) break;
      Json value;
      if (Takes(key, raw)) {
        MINISGL_ASSIGN_OR_RETURN(value, ParseJson(raw));
      } else if (raw.front() == '{' && left_ > 0) {
        MINISGL_ASSIGN_OR_RETURN(value, Read(raw, depth_max - 1));
      } else if (!Takes(key, {})) {
        continue;
      }
      object.as_object().emplace_back(UnquoteJson(key), std::move(value));
    }
    while (scanner.status().ok() && scanner.token() != JsonScanner::Token::kEnd) scanner.Next();
    if (!scanner.status().ok()) return scanner.status();
    return object;
  }

 private:
  // True if a member is to be read; counts its bytes.
  bool Takes(std::string_view key, std::string_view raw) {
    constexpr size_t kMemberBytes = 64;
    const size_t longest = raw.starts_with('"') ? kSkimmedStringBytes : kWholeJsonBytes;
    const size_t bytes = key.size() + raw.size() + kMemberBytes;
    if (raw.size() > longest || bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  size_t left_ = kSkimmedBytes;
};

}  // namespace

Result<Json> SkimJson(std::string_view text) {
  if (text.size() <= kWholeJsonBytes) return ParseJson(text);
  if (!IsValidUtf8(text)) return BadInput("not valid JSON (it is not UTF-8)");
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '{') {
    return Skimmer().Read(text, kJsonDepthMax);
  }
  JsonScanner scanner(text, kJsonDepthMax);
  while (scanner.Next() && scanner.token() != JsonScanner::Token::kEnd) continue;
  if (!scanner.status().ok()) return scanner.status();
  return Json();
}

}  // namespace minisgl::batch
