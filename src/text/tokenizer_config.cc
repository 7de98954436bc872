// Reads the JSON files beside a tokenizer. Only the keys in use are checked: these files contain
// the settings of a whole Python library.
#include "text/tokenizer_config.h"

#include <charconv>
#include <filesystem>

#include "minisgl/base/file_kind.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "text/piece.h"

namespace minisgl::text {
namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{64} << 20;
// An added token has 7 values; vocabularies add a few thousand tokens.
constexpr uint64_t kConfigValuesMax = 1'000'000;

Status Unexpected(const std::string& key, const Json& value, const char* wanted) {
  return BadInput("\"{}\" is {}; it must be {}", Visible(key), value.TypeName(), wanted);
}

// Reads a token, written as its text or as an object with "content".
Result<std::string> TokenText(const std::string& key, const Json& value) {
  const Json* text = &value;
  if (value.is_object()) {
    text = value.Find("content");
    if (text == nullptr) return BadInput("\"{}\" has no \"content\"", Visible(key));
  }
  if (!text->is_string()) return Unexpected(key, *text, "a string");
  if (text->as_string().size() > kPieceBytesMax) {
    return BadInput("\"{}\" has {} bytes; at most {} are supported", Visible(key),
                    text->as_string().size(), kPieceBytesMax);
  }
  return text->as_string();
}

Status ReadBool(const Json& file, const std::string& key, bool* out, bool* is_named = nullptr) {
  const Json* value = file.Find(key);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_bool()) return Unexpected(key, *value, "true or false");
  *out = value->as_bool();
  if (is_named != nullptr) *is_named = true;
  return {};
}

Status ReadRole(const Json& file, const std::string& key, RoleToken* role) {
  const Json* value = file.Find(key);
  if (value == nullptr || role->is_named) return {};
  if (!value->is_null()) {
    MINISGL_ASSIGN_OR_RETURN(role->text, TokenText(key, *value));
  }
  role->is_named = true;
  return {};
}

// Reads the newer form of additional_special_tokens: an array, or an object of named tokens.
Status ReadExtraSpecialTokens(const Json& file, TokenizerConfig* config) {
  const Json* extra = file.Find("extra_special_tokens");
  if (extra == nullptr || extra->is_null()) return {};
  std::vector<const Json*> tokens;
  if (extra->is_array()) {
    for (const Json& token : extra->as_array()) tokens.push_back(&token);
  } else if (extra->is_object()) {
    for (const auto& [name, token] : extra->as_object()) tokens.push_back(&token);
  } else {
    return Unexpected("extra_special_tokens", *extra, "an array or an object");
  }
  for (const Json* token : tokens) {
    MINISGL_ASSIGN_OR_RETURN(std::string text, TokenText("extra_special_tokens", *token));
    config->more_special.push_back(std::move(text));
  }
  return {};
}

Status ReadRoles(const Json& file, TokenizerConfig* config) {
  MINISGL_RETURN_IF_ERROR(ReadRole(file, "bos_token", &config->bos));
  MINISGL_RETURN_IF_ERROR(ReadRole(file, "eos_token", &config->eos));
  MINISGL_RETURN_IF_ERROR(ReadRole(file, "unk_token", &config->unk));
  MINISGL_RETURN_IF_ERROR(ReadRole(file, "pad_token", &config->pad));
  const Json* more = file.Find("additional_special_tokens");
  if (more != nullptr && !more->is_null()) {
    if (!more->is_array()) return Unexpected("additional_special_tokens", *more, "an array");
    for (const Json& token : more->as_array()) {
      MINISGL_ASSIGN_OR_RETURN(std::string text, TokenText("additional_special_tokens", token));
      config->more_special.push_back(std::move(text));
    }
  }
  return ReadExtraSpecialTokens(file, config);
}

Status AddToken(AddedToken token, int64_t id, TokenId ids_max, TokenizerConfig* config) {
  if (id < 0 || id >= ids_max) {
    return BadInput("added token \"{}\" has id {}; ids must be 0 to {}", Visible(token.text), id,
                    ids_max - 1);
  }
  if (token.text.empty()) return BadInput("added token {} has no text", id);
  token.id = static_cast<TokenId>(id);
  const auto [same, is_new] = config->added_ids.try_emplace(token.text, token.id);
  if (!is_new && same->second != token.id) {
    return BadInput("added token \"{}\" has two ids, {} and {}", Visible(token.text), same->second,
                    id);
  }
  config->added.try_emplace(token.id, std::move(token));  // the first file with an id takes effect
  return {};
}

// {"32000": {"content": "<|end|>", "special": true, ...}, ...}
Status ReadAddedTokensDecoder(const Json& file, TokenId ids_max, TokenizerConfig* config) {
  const Json* decoder = file.Find("added_tokens_decoder");
  if (decoder == nullptr || decoder->is_null()) return {};
  if (!decoder->is_object()) return Unexpected("added_tokens_decoder", *decoder, "an object");
  if (decoder->as_object().size() > 65536) {
    return BadInput("added_tokens_decoder has {} tokens; at most 65536 are supported",
                    decoder->as_object().size());
  }
  for (const auto& [key, value] : decoder->as_object()) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return BadInput("added_tokens_decoder: \"{}\" is not a token id", Visible(key));
    }
    if (!value.is_object())
      return Unexpected("added_tokens_decoder", value, "an object of objects");
    AddedToken token;
    MINISGL_ASSIGN_OR_RETURN(token.text, TokenText(key, value));
    MINISGL_RETURN_IF_ERROR(ReadBool(value, "special", &token.special));
    MINISGL_RETURN_IF_ERROR(ReadBool(value, "lstrip", &token.strips_left));
    MINISGL_RETURN_IF_ERROR(ReadBool(value, "rstrip", &token.strips_right));
    MINISGL_RETURN_IF_ERROR(ReadBool(value, "single_word", &token.single_word));
    bool normalized = !token.special;
    MINISGL_RETURN_IF_ERROR(ReadBool(value, "normalized", &normalized));
    token.normalized = normalized;
    token.has_flags = true;
    MINISGL_RETURN_IF_ERROR(AddToken(std::move(token), id, ids_max, config));
  }
  return {};
}

// {"<|end|>": 32000, ...}. A role or additional_special_tokens may make a token special.
Status ReadAddedTokens(const Json& file, TokenId ids_max, TokenizerConfig* config) {
  if (file.is_null()) return {};
  if (file.as_object().size() > 65536) {
    return BadInput("the file has {} tokens; at most 65536 are supported", file.as_object().size());
  }
  for (const auto& [text, id] : file.as_object()) {
    if (!id.is_int()) return Unexpected(text, id, "a token id");
    if (text.size() > kPieceBytesMax) return BadInput("an added token has {} bytes", text.size());
    AddedToken token;
    token.text = text;
    MINISGL_RETURN_IF_ERROR(AddToken(std::move(token), id.as_int(), ids_max, config));
  }
  return {};
}

}  // namespace

Result<Json> LoadJsonObject(const std::string& dir, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(dir) / name;
  if (!IsListed(path.string())) return Json();
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string(), kConfigBytesMax));
  Result<Json> json = ParseJson(text, {.values_max = kConfigValuesMax});
  if (!json.ok()) return OrFileKind(json.status().WithPrefix(path.string()), text, path.string());
  if (!json->is_object()) {
    return BadInput("{}: the file contains {}; it must contain an object", path.string(),
                    json->TypeName());
  }
  return json;
}

Result<TokenizerConfig> TokenizerConfig::Load(const std::string& model_dir, TokenId ids_max) {
  TokenizerConfig config;
  const auto in_file = [&](const char* name, const Status& status) {
    return status.WithPrefix((std::filesystem::path(model_dir) / name).string());
  };
  MINISGL_ASSIGN_OR_RETURN(const Json main, LoadJsonObject(model_dir, "tokenizer_config.json"));
  MINISGL_ASSIGN_OR_RETURN(const Json map, LoadJsonObject(model_dir, "special_tokens_map.json"));
  MINISGL_ASSIGN_OR_RETURN(const Json added, LoadJsonObject(model_dir, "added_tokens.json"));
  const auto read_main = [&]() -> Status {
    MINISGL_RETURN_IF_ERROR(ReadRoles(main, &config));
    MINISGL_RETURN_IF_ERROR(ReadBool(main, "add_bos_token", &config.add_bos));
    MINISGL_RETURN_IF_ERROR(ReadBool(main, "add_eos_token", &config.add_eos));
    MINISGL_RETURN_IF_ERROR(ReadBool(main, "legacy", &config.legacy, &config.legacy_is_named));
    if (const Json* name = main.Find("tokenizer_class"); name != nullptr && name->is_string()) {
      config.tokenizer_class = name->as_string();
    }
    MINISGL_RETURN_IF_ERROR(ReadBool(main, "add_prefix_space", &config.add_prefix_space));
    return ReadAddedTokensDecoder(main, ids_max, &config);
  };
  MINISGL_RETURN_IF_ERROR(in_file("tokenizer_config.json", read_main()));
  MINISGL_RETURN_IF_ERROR(in_file("special_tokens_map.json", ReadRoles(map, &config)));
  MINISGL_RETURN_IF_ERROR(in_file("added_tokens.json", ReadAddedTokens(added, ids_max, &config)));
  return config;
}

}  // namespace minisgl::text
