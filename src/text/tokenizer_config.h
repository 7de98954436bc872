// What stands beside tokenizer.model or tokenizer.json: tokenizer_config.json,
// special_tokens_map.json and added_tokens.json. All are optional; where two say something about
// one token, tokenizer_config.json counts.
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

// A token that a file adds, or says more about.
struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;
  bool strips_left = false, strips_right = false;  // white space beside it is not part of the text
  bool single_word = false;                        // found only where no word stands next to it
  std::optional<bool> normalized;                  // found in normalised text
  bool has_flags = false;                          // the file says the above
};

// A token that the model is said to use in a role.
struct RoleToken {
  bool is_named = false;  // the key stands there; with null, there is no such token
  std::string text;       // "" for null
};

struct TokenizerConfig {
  RoleToken bos, eos, unk, pad;
  std::vector<std::string> more_special;  // additional_special_tokens
  std::map<TokenId, AddedToken> added;
  std::unordered_map<std::string, TokenId> added_ids;  // by text
  bool add_bos = true, add_eos = false;
  // The reference puts the dummy prefix after every special token (legacy) or at the beginning of a
  // text alone.
  bool legacy = true, legacy_is_named = false;
  bool add_prefix_space = true;
  std::string tokenizer_class;  // "" where none is named

  // REQUIRES ids < `ids_max` in the files, else kBadInput.
  static Result<TokenizerConfig> Load(const std::string& model_dir, TokenId ids_max);
};

// The JSON object in `dir`/`name`; null where there is no such file.
Result<Json> LoadJsonObject(const std::string& dir, const std::string& name);

}  // namespace minisgl::text
