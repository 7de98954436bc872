// See gguf_tokenizer.h.
#include "text/gguf_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "minisgl/base/base64.h"
#include "minisgl/base/json.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/chat_template.h"
#include "text/gguf_splits.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece/model.h"
#include "text/sentencepiece/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json/loader.h"

namespace minisgl::text {
namespace {

// The most bytes of a table of normalisation, which has some hundred kilobytes.
constexpr uint64_t kCharacterTableBytesMax = 16 << 20;

struct Token {
  std::string_view text;  // in the file
  PieceType type = PieceType::kNormal;
};

// Values under "tokenizer.ggml.".
class Keys {
 public:
  explicit Keys(const GgufHeader& header) : header_(header) {}

  const GgufValue* Find(std::string_view name) const { return header_.Find(KeyOf(name)); }
  static std::string KeyOf(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

  std::string Text(std::string_view name) const {
    const GgufValue* const value = Find(name);
    return std::string(value == nullptr ? "" : value->AsString().value_or(""));
  }
  bool Bool(std::string_view name, bool fallback) const {
    const GgufValue* const value = Find(name);
    if (value == nullptr) return fallback;
    const std::optional<int64_t> number = value->AsInt();  // some files have numbers
    return value->AsBool().value_or(number ? *number != 0 : fallback);
  }
  // A token's id; -1 if there is none.
  int32_t Id(std::string_view name, size_t num_tokens) const {
    const GgufValue* const value = Find(fmt::format("{}_token_id", name));
    const int64_t id = value == nullptr ? -1 : value->AsInt().value_or(-1);
    return id < 0 || id >= static_cast<int64_t>(num_tokens) ? -1 : static_cast<int32_t>(id);
  }
  // A list with an element for each of `count` tokens; `count` 0: of any length.
  Result<GgufElements> List(std::string_view name, size_t count) const {
    const GgufValue* const value = Find(name);
    const bool is_list = value != nullptr && value->type() == GgufType::kArray;
    if (!is_list || value->count() > kPiecesMax || (count > 0 && value->count() != count)) {
      return BadInput("key \"{}\": a list{} is needed (found {})", KeyOf(name),
                      count > 0 ? fmt::format(" of {} elements, one for each token,", count) : "",
                      is_list ? fmt::format("{} elements", value->count()) : "none");
    }
    return value->Elements();
  }

 private:
  const GgufHeader& header_;
};

Result<std::vector<Token>> ReadTokens(const Keys& keys) {
  MINISGL_ASSIGN_OR_RETURN(const GgufElements texts, keys.List("tokens", 0));
  std::vector<Token> tokens;
  tokens.reserve(texts.size());
  for (const GgufValue& element : texts) {
    const auto text = element.AsString();
    if (!text) return BadInput("key \"{}\": a list of texts is needed", Keys::KeyOf("tokens"));
    tokens.push_back({*text});
  }
  if (tokens.empty()) return BadInput("key \"{}\": the list is empty", Keys::KeyOf("tokens"));
  if (keys.Find("token_type") == nullptr) return tokens;
  MINISGL_ASSIGN_OR_RETURN(const auto types, keys.List("token_type", tokens.size()));
  size_t id = 0;
  for (const GgufValue& element : types) {
    const int64_t type = element.AsInt().value_or(-1);
    if (type < 1 || type > 6) {
      return BadInput("key \"{}\": token {} has a type that is not 1 to 6",
                      Keys::KeyOf("token_type"), id);
    }
    tokens[id++].type = static_cast<PieceType>(type);
  }
  return tokens;
}

RoleToken RoleOf(const Keys& keys, std::string_view name, const std::vector<Token>& tokens) {
  const int32_t id = keys.Id(name, tokens.size());
  return {true, std::string(id < 0 ? "" : tokens[static_cast<size_t>(id)].text)};
}

TokenizerConfig ConfigOf(const Keys& keys, const std::vector<Token>& tokens, bool add_bos) {
  TokenizerConfig config;
  config.bos = RoleOf(keys, "bos", tokens);
  config.eos = RoleOf(keys, "eos", tokens);
  config.unk = RoleOf(keys, "unknown", tokens);
  config.pad = RoleOf(keys, "padding", tokens);
  config.add_bos = keys.Bool("add_bos_token", add_bos) && !config.bos.text.empty();
  config.add_eos = keys.Bool("add_eos_token", false) && !config.eos.text.empty();
  return config;
}

// Some files, such as Phi-3's, also mark tokens that only fill the table as unknown. One token
// stands for text without a token: the token that the file names, or the first.
void KeepOneUnknown(const Keys& keys, std::vector<Token>* tokens) {
  const auto is_unknown = [](const Token& token) { return token.type == PieceType::kUnknown; };
  const int32_t named = keys.Id("unknown", tokens->size());
  auto kept = std::find_if(tokens->begin(), tokens->end(), is_unknown);
  if (named >= 0 && is_unknown((*tokens)[static_cast<size_t>(named)])) {
    kept = tokens->begin() + named;
  }
  for (auto token = tokens->begin(); token != tokens->end(); ++token) {
    if (token != kept && is_unknown(*token)) token->type = PieceType::kUnused;
  }
}

Result<std::unique_ptr<Tokenizer>> MakeSentencePiece(const Keys& keys, std::vector<Token> tokens) {
  KeepOneUnknown(keys, &tokens);
  TokenizerConfig config = ConfigOf(keys, tokens, /*add_bos=*/true);
  MINISGL_ASSIGN_OR_RETURN(const auto scores, keys.List("scores", tokens.size()));
  SentencePieceModel written;
  written.kind = SentencePieceModel::Kind::kBpe;
  written.add_dummy_prefix = keys.Bool("add_space_prefix", true);
  written.remove_extra_whitespaces = keys.Bool("remove_extra_whitespaces", false);
  auto score = scores.begin();
  for (const Token& token : tokens) {
    written.byte_fallback |= token.type == PieceType::kByte;
    written.pieces.push_back(
        {std::string(token.text), static_cast<float>((*score).AsDouble().value_or(0)), token.type});
    ++score;
  }
  // Every check of a model file holds for it, too.
  MINISGL_ASSIGN_OR_RETURN(SentencePieceModel model, SentencePieceModel::Read(written.Write()));
  model.bos_id = keys.Id("bos", model.pieces.size());
  model.eos_id = keys.Id("eos", model.pieces.size());
  return SentencePieceTokenizer::Create(std::move(model), std::move(config));
}

Json Object(std::initializer_list<Json::Member> members) { return Json(Json::Object(members)); }

// Cuts a text into words, and those into bytes.
Json PreTokenizerJson(const GgufSplit& split) {
  Json steps = Json(Json::Array());
  if (split.single_digits) {
    steps.Append(Object({{"type", "Digits"}, {"individual_digits", true}}));
  }
  for (const char* expression : split.expressions) {
    if (expression == nullptr) break;
    steps.Append(Object({{"type", "Split"},
                         {"pattern", Object({{"Regex", expression}})},
                         {"behavior", "Isolated"},
                         {"invert", false}}));
  }
  steps.Append(Object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", split.expressions[0] == nullptr}}));
  return Object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
}

// Puts the tokens of `config` around a text.
Json PostProcessorJson(const Keys& keys, const TokenizerConfig& config, size_t num_tokens) {
  Json single = Json(Json::Array()), special = Json(Json::Object());
  const auto add = [&](const RoleToken& role, std::string_view name) {
    single.Append(Object({{"SpecialToken", Object({{"id", role.text}, {"type_id", 0}})}}));
    special.Set(role.text, Object({{"id", role.text},
                                   {"ids", Json(Json::Array{Json(keys.Id(name, num_tokens))})},
                                   {"tokens", Json(Json::Array{Json(role.text)})}}));
  };
  if (config.add_bos) add(config.bos, "bos");
  single.Append(Object({{"Sequence", Object({{"id", "A"}, {"type_id", 0}})}}));
  if (config.add_eos) add(config.eos, "eos");
  return Object({{"type", "TemplateProcessing"},
                 {"single", std::move(single)},
                 {"pair", Json(Json::Array())},
                 {"special_tokens", std::move(special)}});
}

class GgufMerges : public MergeList {
 public:
  explicit GgufMerges(const GgufElements& merges) {
    lines_.reserve(merges.size());
    for (const GgufValue& merge : merges) lines_.push_back(merge.AsString().value_or(""));
  }
  size_t size() const override { return lines_.size(); }
  MergeEntry At(size_t index) const override { return ReadMergeLine(lines_[index]); }

 private:
  std::vector<std::string_view> lines_;  // in the file
};

// Returns the tokenizer.json that says the same, without the vocabulary, the merges, and the steps
// that cut and join texts.
Json TokenizerJsonOf(const Keys& keys, const std::vector<Token>& tokens,
                     const TokenizerConfig& config, Json::Object model) {
  Json::Array added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const PieceType type = tokens[id].type;
    if (type != PieceType::kControl && type != PieceType::kUserDefined) continue;
    added.push_back(Object({{"id", static_cast<int64_t>(id)},
                            {"content", std::string(tokens[id].text)},
                            {"special", type == PieceType::kControl},
                            {"normalized", false}}));
  }
  model.emplace_back("type", "BPE");
  return Object({{"added_tokens", Json(std::move(added))},
                 {"post_processor", PostProcessorJson(keys, config, tokens.size())},
                 {"model", Json(std::move(model))}});
}

Result<std::unique_ptr<Tokenizer>> MakeFromJson(const Json& json, const TokenizerConfig& config,
                                                const TokenTable* table = nullptr) {
  MINISGL_ASSIGN_OR_RETURN(TokenizerParts parts, ReadTokenizerParts(json, config, table));
  return MakePipelineTokenizer(std::move(parts));
}

// `json`: what TokenizerJsonOf returns, with all steps.
Result<std::unique_ptr<Tokenizer>> MakeBpe(const Json& json, const Keys& keys,
                                           const std::vector<Token>& tokens,
                                           const TokenizerConfig& config) {
  MINISGL_ASSIGN_OR_RETURN(const GgufElements list, keys.List("merges", 0));
  const GgufMerges merges(list);
  TokenTable table;
  table.merges = &merges;
  table.spellings.reserve(tokens.size());
  for (const Token& token : tokens) table.spellings.push_back(token.text);
  return MakeFromJson(json, config, &table);
}

Result<std::unique_ptr<Tokenizer>> MakeByteLevel(const Keys& keys,
                                                 const std::vector<Token>& tokens) {
  const std::string name = keys.Text("pre");
  const GgufSplit* const split = FindGgufSplit(name.empty() ? kDefaultSplit : name, tokens.size());
  if (split == nullptr) {
    return BadInput("key \"{}\": a way of cutting text that is not known (found \"{}\"); known: {}",
                    Keys::KeyOf("pre"), Visible(name, 60), GgufSplitNames());
  }
  const TokenizerConfig config = ConfigOf(keys, tokens, split->begins_with_bos);
  Json json = TokenizerJsonOf(keys, tokens, config, {{"ignore_merges", split->ignores_merges}});
  json.Set("normalizer", split->composes ? Object({{"type", "NFC"}}) : Json());
  json.Set("pre_tokenizer", PreTokenizerJson(*split));
  json.Set("decoder", Object({{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", true}}));
  return MakeBpe(json, keys, tokens, config);
}

// Makes Gemma 4's tokenizer: it spells spaces as a sign of their own, and text without a token as
// bytes.
Result<std::unique_ptr<Tokenizer>> MakeByteFallback(const Keys& keys,
                                                    const std::vector<Token>& tokens) {
  constexpr const char *kSpace = " ", *kSign = "\u2581";
  const TokenizerConfig config = ConfigOf(keys, tokens, /*add_bos=*/true);
  Json::Object model = {{"byte_fallback", true}, {"fuse_unk", true}};
  if (!config.unk.text.empty()) model.emplace_back("unk_token", config.unk.text);
  Json json = TokenizerJsonOf(keys, tokens, config, std::move(model));
  const auto replace = [](const char* text, const char* by) {
    return Object({{"type", "Replace"}, {"pattern", Object({{"String", text}})}, {"content", by}});
  };
  json.Set("normalizer", replace(kSpace, kSign));
  json.Set("decoder", Object({{"type", "Sequence"},
                              {"decoders", Json(Json::Array{replace(kSign, kSpace),
                                                            Object({{"type", "ByteFallback"}}),
                                                            Object({{"type", "Fuse"}})})}}));
  return MakeBpe(json, keys, tokens, config);
}

// The pieces of BERT as files have them: words begin with a sign, other pieces with nothing.
std::string WordPieceOf(const Token& token) {
  constexpr std::string_view kSign = "\u2581";
  const std::string text(token.text);
  if (text.starts_with(kSign)) return text.substr(kSign.size());
  const bool is_mark =
      token.type != PieceType::kNormal || (text.starts_with('[') && text.ends_with(']'));
  return is_mark ? text : "##" + text;
}

// The first of the roles that the file names, or the token that is spelled `usual`; an error if
// there is neither.
Result<int64_t> MarkOf(const Keys& keys, std::initializer_list<const char*> roles,
                       const std::vector<Token>& tokens, std::string_view usual) {
  for (const char* role : roles) {
    const int32_t id = keys.Id(role, tokens.size());
    if (id >= 0) return id;
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].text == usual) return static_cast<int64_t>(id);
  }
  return BadInput("key \"{}\": the list has no \"{}\"", Keys::KeyOf("tokens"), usual);
}

// Files do not say whether texts are in lower case: they are if no piece has a capital letter.
Result<std::unique_ptr<Tokenizer>> MakeWordPiece(const Keys& keys,
                                                 const std::vector<Token>& tokens) {
  MINISGL_ASSIGN_OR_RETURN(const int64_t first, MarkOf(keys, {"cls", "bos"}, tokens, "[CLS]"));
  // The first name is misspelled in files.
  MINISGL_ASSIGN_OR_RETURN(const int64_t last,
                           MarkOf(keys, {"seperator", "separator", "eos"}, tokens, "[SEP]"));
  MINISGL_ASSIGN_OR_RETURN(const int64_t unknown, MarkOf(keys, {"unknown"}, tokens, "[UNK]"));
  Json::Object vocabulary;
  Json::Array added;
  bool has_capitals = false;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto number = static_cast<int64_t>(id);
    std::string piece = WordPieceOf(tokens[id]);
    const bool is_mark = tokens[id].type == PieceType::kControl || number == first ||
                         number == last || number == unknown;
    if (is_mark) {
      added.push_back(
          Object({{"id", number}, {"content", piece}, {"special", true}, {"normalized", false}}));
    } else if (!piece.starts_with('[')) {
      has_capitals |=
          std::any_of(piece.begin(), piece.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    }
    vocabulary.emplace_back(std::move(piece), number);
  }
  const auto spelled = [&](int64_t id) { return WordPieceOf(tokens[static_cast<size_t>(id)]); };
  const auto pair = [&](int64_t id) { return Json(Json::Array{Json(spelled(id)), Json(id)}); };
  const Json json =
      Object({{"added_tokens", Json(std::move(added))},
              {"normalizer", Object({{"type", "BertNormalizer"}, {"lowercase", !has_capitals}})},
              {"pre_tokenizer", Object({{"type", "BertPreTokenizer"}})},
              {"post_processor",
               Object({{"type", "BertProcessing"}, {"cls", pair(first)}, {"sep", pair(last)}})},
              {"decoder", Object({{"type", "WordPiece"}})},
              {"model", Object({{"type", "WordPiece"},
                                {"unk_token", spelled(unknown)},
                                {"vocab", Json(std::move(vocabulary))}})}});
  return MakeFromJson(json, TokenizerConfig());
}

Json TextReplaced(Json pattern, const char* by) {
  return Object({{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", by}});
}

// <s> A </s>, and of two texts <s> A </s> </s> B </s>.
Json FramesOfUnigrams(const RoleToken& first, int64_t first_id, const RoleToken& last,
                      int64_t last_id) {
  Json special = Json(Json::Object());
  for (const auto& [role, id] : {std::pair(&first, first_id), std::pair(&last, last_id)}) {
    special.Set(role->text, Object({{"id", role->text},
                                    {"ids", Json(Json::Array{Json(id)})},
                                    {"tokens", Json(Json::Array{Json(role->text)})}}));
  }
  const auto mark = [](const RoleToken& role) {
    return Object({{"SpecialToken", Object({{"id", role.text}, {"type_id", 0}})}});
  };
  const auto text = [](const char* name) {
    return Object({{"Sequence", Object({{"id", name}, {"type_id", 0}})}});
  };
  return Object({{"type", "TemplateProcessing"},
                 {"single", Json(Json::Array{mark(first), text("A"), mark(last)})},
                 {"pair", Json(Json::Array{mark(first), text("A"), mark(last), mark(last),
                                           text("B"), mark(last)})},
                 {"special_tokens", std::move(special)}});
}

// Makes the tokenizer of XLM-RoBERTa and its kin: what llama.cpp calls "t5". Files do not say that
// spaces in a row count as one, or what stands between two texts; with these tokenizers all do so.
Result<std::unique_ptr<Tokenizer>> MakeUnigram(const Keys& keys, const std::vector<Token>& tokens) {
  MINISGL_ASSIGN_OR_RETURN(const int64_t first, MarkOf(keys, {"bos", "cls"}, tokens, "<s>"));
  MINISGL_ASSIGN_OR_RETURN(const int64_t last, MarkOf(keys, {"eos", "seperator"}, tokens, "</s>"));
  MINISGL_ASSIGN_OR_RETURN(const int64_t unknown, MarkOf(keys, {"unknown"}, tokens, "<unk>"));
  MINISGL_ASSIGN_OR_RETURN(const auto scores, keys.List("scores", tokens.size()));
  Json::Array pieces, added;
  auto score = scores.begin();
  for (size_t id = 0; id < tokens.size(); ++id, ++score) {
    const std::string text(tokens[id].text);
    pieces.push_back(Json(Json::Array{Json(text), Json((*score).AsDouble().value_or(0))}));
    const PieceType type = tokens[id].type;
    const auto number = static_cast<int64_t>(id);
    const bool is_mark = number == first || number == last || number == unknown;
    if (!is_mark && type != PieceType::kControl && type != PieceType::kUserDefined) continue;
    added.push_back(Object({{"id", number},
                            {"content", text},
                            {"special", type != PieceType::kUserDefined},
                            {"normalized", false}}));
  }
  Json normalizers = Json(Json::Array());
  if (const GgufValue* const table = keys.Find("precompiled_charsmap")) {
    std::string bytes;
    for (const GgufValue& byte : table->Elements(kCharacterTableBytesMax)) {
      bytes.push_back(static_cast<char>(byte.AsInt().value_or(0)));
    }
    if (!bytes.empty()) {
      normalizers.Append(
          Object({{"type", "Precompiled"}, {"precompiled_charsmap", EncodeBase64(bytes)}}));
    }
  }
  normalizers.Append(TextReplaced(Object({{"Regex", " {2,}"}}), " "));
  const Json space =
      Object({{"type", "Metaspace"},
              {"replacement", "\u2581"},
              {"prepend_scheme", keys.Bool("add_space_prefix", true) ? "always" : "never"},
              {"split", true}});
  const auto role = [&](int64_t id) {
    return RoleToken{true, std::string(tokens[static_cast<size_t>(id)].text)};
  };
  const Json json = Object(
      {{"added_tokens", Json(std::move(added))},
       {"normalizer", Object({{"type", "Sequence"}, {"normalizers", std::move(normalizers)}})},
       {"pre_tokenizer",
        Object(
            {{"type", "Sequence"},
             {"pretokenizers", Json(Json::Array{Object({{"type", "WhitespaceSplit"}}), space})}})},
       {"post_processor", FramesOfUnigrams(role(first), first, role(last), last)},
       {"decoder", space},
       {"model", Object({{"type", "Unigram"},
                         {"unk_id", unknown},
                         {"vocab", Json(std::move(pieces))},
                         {"byte_fallback", false}})}});
  return MakeFromJson(json, TokenizerConfig());
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(const GgufHeader& header) {
  const Keys keys(header);
  const std::string model = keys.Text("model");
  if (model != "llama" && model != "gpt2" && model != "gemma4" && model != "bert" &&
      model != "t5") {
    return BadInput(
        "key \"{}\": \"llama\", \"gpt2\", \"gemma4\", \"bert\" and \"t5\" are supported (found {})",
        Keys::KeyOf("model"), model.empty() ? "none" : fmt::format("\"{}\"", Visible(model, 60)));
  }
  MINISGL_ASSIGN_OR_RETURN(std::vector<Token> tokens, ReadTokens(keys));
  if (model == "llama") return MakeSentencePiece(keys, std::move(tokens));
  if (model == "bert") return MakeWordPiece(keys, tokens);
  if (model == "t5") return MakeUnigram(keys, tokens);
  const bool is_uncut = model == "gemma4" || IsUncut(keys.Text("pre"));
  return is_uncut ? MakeByteFallback(keys, tokens) : MakeByteLevel(keys, tokens);
}

Result<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  Result<std::unique_ptr<Tokenizer>> tokenizer = MakeGgufTokenizer(file.header());
  if (!tokenizer.ok()) return tokenizer.status().WithPrefix(Visible(path, 400));
  const Keys keys(file.header());
  const std::string split = keys.Text("pre");
  if (keys.Text("model") == "gpt2" && (split.empty() || split == kDefaultSplit)) {
    Log(LogLevel::kWarning,
        fmt::format("{}: key \"{}\" {}: text is cut as llama.cpp cuts it then, maybe not as the "
                    "model's own tokenizer does; a newer file of the model may say how",
                    Visible(path, 400), Keys::KeyOf("pre"),
                    split.empty() ? "is missing" : "is \"default\""));
  }
  return tokenizer;
}

Result<std::map<std::string, std::string>> LoadGgufTemplates(const std::string& path) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  std::map<std::string, std::string> sources;
  for (const auto& [key, value] : file.header().metadata) {
    const auto text = value.AsString();
    if (!text || !key.starts_with(kKey)) continue;
    const std::string_view rest = std::string_view(key).substr(kKey.size());
    if (!rest.empty() && !rest.starts_with('.')) continue;
    if (text->size() > kTemplateBytesMax) {
      return BadInput("{}: key \"{}\" has {} bytes; at most {} are supported", Visible(path, 400),
                      Visible(key, 100), text->size(), kTemplateBytesMax);
    }
    // An empty one is none: every conversation would be rendered as nothing.
    if (text->find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
    sources[rest.empty() ? "default" : std::string(rest.substr(1))] = *text;
  }
  return sources;
}

}  // namespace minisgl::text
