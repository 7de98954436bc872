// See vocabulary_file.h. The rules are those of BertTokenizer.
#include "text/vocabulary_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json/vocabulary.h"

namespace minisgl::text {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

// Ids by piece, of equal ones the last.
using PieceIds = std::unordered_map<std::string_view, int64_t>;

Result<PieceIds> ReadPieces(std::string_view text) {
  PieceIds ids;
  for (int64_t id = 0; !text.empty(); ++id) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view piece = text.substr(0, end);
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (id >= kVocabularyIdsMax) {
      return BadInput("has more than {} lines", kVocabularyIdsMax);
    }
    if (!IsValidUtf8(piece)) return BadInput("line {} is not UTF-8", id + 1);
    if (!piece.empty()) ids[piece] = id;
  }
  if (ids.empty()) return BadInput("has no pieces");
  return ids;
}

Json Special(std::string_view text, int64_t id) {
  return Json(Json::Object{{"id", Json(id)},
                           {"content", Json(std::string(text))},
                           {"special", Json(true)},
                           {"normalized", Json(false)}});
}

// The text of a token of tokenizer_config.json.
std::string TokenNamed(const Json& config, const char* key, const char* usual) {
  const Json* value = config.Find(key);
  if (value != nullptr && value->is_object()) value = value->Find("content");
  return value != nullptr && value->is_string() ? value->as_string() : usual;
}

Result<Json> Switch(const Json& config, const char* key, Json usual) {
  const Json* const value = config.Find(key);
  if (value == nullptr || value->is_null()) return usual;
  if (!value->is_bool()) {
    return BadInput("\"{}\" is {}; it must be true or false", key, value->TypeName());
  }
  return *value;
}

Result<Json> MakeTokenizer(const PieceIds& ids, const Json& config) {
  Json::Array added;
  std::unordered_map<std::string, int64_t> roles;
  for (const auto& [key, usual] : {std::pair("unk_token", "[UNK]"), std::pair("cls_token", "[CLS]"),
                                   std::pair("sep_token", "[SEP]"), std::pair("pad_token", "[PAD]"),
                                   std::pair("mask_token", "[MASK]")}) {
    const std::string text = TokenNamed(config, key, usual);
    const auto found = ids.find(text);
    const bool is_needed =
        std::string_view(key) != "pad_token" && std::string_view(key) != "mask_token";
    if (found == ids.end() && is_needed) {
      return BadInput("has no line \"{}\", the {} of the model", Visible(text, 60), key);
    }
    if (found == ids.end()) continue;
    added.push_back(Special(text, found->second));
    roles[key] = found->second;
  }
  Json::Object vocabulary;
  for (const auto& [piece, id] : ids) vocabulary.emplace_back(std::string(piece), Json(id));
  MINISGL_ASSIGN_OR_RETURN(const Json lowercase, Switch(config, "do_lower_case", Json(true)));
  MINISGL_ASSIGN_OR_RETURN(const Json strips, Switch(config, "strip_accents", Json()));
  MINISGL_ASSIGN_OR_RETURN(const Json parts, Switch(config, "tokenize_chinese_chars", Json(true)));
  const std::string unk = TokenNamed(config, "unk_token", "[UNK]");
  const auto pair = [&](const char* key) {
    return Json(Json::Array{Json(std::string(key)), Json(roles.at(key))});
  };
  return Json(
      Json::Object{{"added_tokens", Json(std::move(added))},
                   {"normalizer", Json(Json::Object{{"type", Json("BertNormalizer")},
                                                    {"lowercase", lowercase},
                                                    {"strip_accents", strips},
                                                    {"handle_chinese_chars", parts}})},
                   {"pre_tokenizer", Json(Json::Object{{"type", Json("BertPreTokenizer")}})},
                   {"post_processor", Json(Json::Object{{"type", Json("BertProcessing")},
                                                        {"cls", pair("cls_token")},
                                                        {"sep", pair("sep_token")}})},
                   {"decoder", Json(Json::Object{{"type", Json("WordPiece")}})},
                   {"model", Json(Json::Object{{"type", Json("WordPiece")},
                                               {"unk_token", Json(unk)},
                                               {"vocab", Json(std::move(vocabulary))}})}});
}

}  // namespace

Result<Json> ReadVocabularyFile(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / kVocabularyFile).string();
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  MINISGL_ASSIGN_OR_RETURN(const Json config, LoadJsonObject(model_dir, "tokenizer_config.json"));
  const auto make = [&]() -> Result<Json> {
    MINISGL_ASSIGN_OR_RETURN(const PieceIds ids, ReadPieces(text));
    return MakeTokenizer(ids, config.is_object() ? config : Json(Json::Object()));
  };
  Result<Json> json = make();
  if (!json.ok()) return json.status().WithPrefix(Visible(path, 400));
  return json;
}

}  // namespace minisgl::text
