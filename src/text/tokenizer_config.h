// The optional files beside tokenizer.model or tokenizer.json: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json. If two of them define the same token,
// tokenizer_config.json takes precedence.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::text {

// A token that a file adds to the vocabulary, or whose flags it sets.
struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;
  bool strips_left = false, strips_right = false;  // absorbs the white space next to it
  bool single_word = false;                        // matched only if no word character is adjacent
  std::optional<bool> normalized;                  // matched in normalised text
  bool has_flags = false;                          // the file sets the flags above
};

// The token of a role, such as the end of a sequence.
struct RoleToken {
  bool is_named = false;  // the key is present; if its value is null, the model has no such token
  std::string text;       // "" for null
};

struct TokenizerConfig {
  RoleToken bos, eos, unk, pad;
  std::vector<std::string> more_special;  // additional_special_tokens
  std::map<TokenId, AddedToken> added;
  std::unordered_map<std::string, TokenId> added_ids;  // by text
  bool add_bos = true, add_eos = false;
  // If true, the reference inserts the dummy prefix after every special token, otherwise only at
  // the beginning of a text.
  bool legacy = true, legacy_is_named = false;
  bool add_prefix_space = true;
  std::string tokenizer_class;  // "" if absent

  // kBadInput if an id in the files is not below `ids_max`.
  static Result<TokenizerConfig> Load(const std::string& model_dir, TokenId ids_max);
};

// Reads the JSON object in `dir`/`name`; null if the file does not exist.
Result<Json> LoadJsonObject(const std::string& dir, const std::string& name);

}  // namespace minisgl::text
