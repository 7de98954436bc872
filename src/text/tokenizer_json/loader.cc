// Reads tokenizer.json in this order:
//   1. the vocabulary
//   2. added tokens, also from the files beside it
//   3. merges, except merges to added tokens
//   4. the steps before and after the model
#include "text/tokenizer_json/loader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>

#include "minisgl/base/file_kind.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "text/piece.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/json_place.h"
#include "text/tokenizer_json/post_processor.h"
#include "text/tokenizer_json/unigram.h"
#include "text/tokenizer_json/word_piece.h"

namespace minisgl::text {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;  // Gemma 3: 33 MB
// Gemma 3: 1.8 million, mostly its 514,906 merges, written as arrays of two.
constexpr uint64_t kFileValuesMax = 6'000'000;
constexpr size_t kAddedMax = 65536;

class JsonMerges : public MergeList {
 public:
  explicit JsonMerges(const Json::Array& merges) : merges_(merges) {}
  size_t size() const override { return merges_.size(); }
  MergeEntry At(size_t index) const override { return ReadMerge(merges_[index]); }

 private:
  const Json::Array& merges_;
};

class TokenizerJsonReader {
 public:
  TokenizerJsonReader(const Json& file, const TokenizerConfig& config, const TokenTable* table)
      : root_(&file), config_(config), table_(table) {}

  Result<TokenizerParts> Run() {
    const JsonPlace model = root_["model"];
    if (!model.json().is_object()) return model.MustBe("an object");
    const std::string type = ModelType(root_.json());
    if (!IsModelTypeRead(type)) {
      return model["type"].Error("is \"{}\"; supported are BPE, WordPiece and Unigram",
                                 Visible(type));
    }
    if (type == "Unigram") {
      MINISGL_RETURN_IF_ERROR(ReadScoredVocabulary(model["vocab"]));
    } else {
      MINISGL_RETURN_IF_ERROR(ReadVocabulary(model["vocab"]));
    }
    MINISGL_RETURN_IF_ERROR(ReadAddedTokens(root_["added_tokens"]));
    MINISGL_RETURN_IF_ERROR(AddConfiguredTokens());
    AddRoles();
    if (type == "BPE") {
      MINISGL_RETURN_IF_ERROR(ReadBpe(model));
    } else if (type == "WordPiece") {
      MINISGL_RETURN_IF_ERROR(ReadWordPiece(model));
    } else {
      MINISGL_RETURN_IF_ERROR(ReadUnigram(model));
    }
    MINISGL_RETURN_IF_ERROR(ReadSteps());
    MINISGL_RETURN_IF_ERROR(ReadSurroundings());
    for (auto& [text, rule] : added_) parts_.added.push_back(std::move(rule));
    return std::move(parts_);
  }

 private:
  Status ReadVocabulary(const JsonPlace& place) {
    vocabulary_ = std::make_shared<Vocabulary>();
    if (table_ != nullptr) return ReadTable(place);
    if (!place.json().is_object()) return place.MustBe("an object");
    vocabulary_->Reserve(place.json().as_object().size());
    for (const auto& [text, id] : place.json().as_object()) {
      if (!id.is_int()) {
        return place.Error("has {} for \"{}\"; it must be an id", id.TypeName(), Visible(text));
      }
      const Status status = vocabulary_->Add(text, id.as_int());
      if (!status.ok()) return status.WithPrefix(place.path());
    }
    if (vocabulary_->num_tokens() == 0) return place.Error("is empty");
    return {};
  }

  Status ReadTable(const JsonPlace& place) {
    vocabulary_->Reserve(table_->spellings.size());
    const Status status = vocabulary_->AddAll(table_->spellings, 0);
    if (!status.ok()) return status.WithPrefix(place.path());
    if (table_->spellings.empty()) return place.Error("is empty");
    return {};
  }

  // [["▁the", -3.5], ...], the index of each is its id.
  Status ReadScoredVocabulary(const JsonPlace& place) {
    if (!place.json().is_array()) return place.MustBe("an array");
    vocabulary_ = std::make_shared<Vocabulary>();
    for (const Json& entry : place.json().as_array()) {
      const bool is_pair = entry.is_array() && entry.as_array().size() == 2;
      if (!is_pair || !entry.as_array()[0].is_string() || !entry.as_array()[1].is_number() ||
          !std::isfinite(entry.as_array()[1].as_double())) {
        return place.Error("has {} at {}; a text and its score are needed",
                           Visible(entry.Dump(), 60), scores_.size());
      }
      const auto id = static_cast<int64_t>(scores_.size());
      const Status status = vocabulary_->Add(entry.as_array()[0].as_string(), id);
      if (!status.ok()) return status.WithPrefix(place.path());
      scores_.push_back(entry.as_array()[1].as_double());
    }
    if (scores_.empty()) return place.Error("is empty");
    return {};
  }

  std::optional<TokenId> FindToken(const std::string& text) const {
    const auto added = added_.find(text);
    return added == added_.end() ? vocabulary_->Find(text) : added->second.id;
  }

  // If the vocabulary contains the text, its id is used, as in the reference.
  Status AddToken(const JsonPlace& place, AddedTokenRule rule) {
    if (const auto known = FindToken(rule.text)) {
      rule.id = *known;
    } else if (vocabulary_->Has(rule.id)) {
      return place.Error("gives \"{}\" the id {}, which is \"{}\" in model.vocab",
                         Visible(rule.text), rule.id, Visible(vocabulary_->Spelling(rule.id)));
    }
    const auto [same, is_new] = added_texts_.try_emplace(rule.id, rule.text);
    if (!is_new && same->second != rule.text) {
      return place.Error("gives \"{}\" the id {}, already used by \"{}\"", Visible(rule.text),
                         rule.id, Visible(same->second));
    }
    if (added_.size() >= kAddedMax) {
      return place.Error("is one too many; at most {} are supported", kAddedMax);
    }
    added_.insert_or_assign(rule.text, rule);
    return {};
  }

  Status ReadAddedTokens(const JsonPlace& place) {
    if (place.is_null()) return {};
    if (!place.json().is_array()) return place.MustBe("an array");
    if (place.json().as_array().size() > kAddedMax) {
      return place.Error("has {} tokens; at most {} are supported", place.json().as_array().size(),
                         kAddedMax);
    }
    MINISGL_ASSIGN_OR_RETURN(const std::vector<JsonPlace> tokens, place.Elements());
    for (const JsonPlace& token : tokens) {
      if (!token.json().is_object()) return token.MustBe("an object");
      AddedTokenRule rule;
      MINISGL_ASSIGN_OR_RETURN(rule.text, token["content"].String());
      if (rule.text.empty()) continue;  // as in the reference
      if (rule.text.size() > kPieceBytesMax) {
        return token["content"].Error("has {} bytes; at most {} are supported", rule.text.size(),
                                      kPieceBytesMax);
      }
      MINISGL_ASSIGN_OR_RETURN(const int64_t id, token["id"].Int(0, kVocabularyIdsMax - 1));
      rule.id = static_cast<TokenId>(id);
      MINISGL_ASSIGN_OR_RETURN(rule.special, token["special"].Bool(false));
      MINISGL_ASSIGN_OR_RETURN(rule.normalized, token["normalized"].Bool(!rule.special));
      MINISGL_ASSIGN_OR_RETURN(rule.single_word, token["single_word"].Bool(false));
      MINISGL_ASSIGN_OR_RETURN(rule.strips_left, token["lstrip"].Bool(false));
      MINISGL_ASSIGN_OR_RETURN(rule.strips_right, token["rstrip"].Bool(false));
      MINISGL_RETURN_IF_ERROR(AddToken(token, std::move(rule)));
    }
    return {};
  }

  // Flags in tokenizer_config.json replace flags of tokenizer.json. Entries of added_tokens.json
  // have no flags and only add tokens.
  Status AddConfiguredTokens() {
    for (const auto& [id, token] : config_.added) {
      const auto known = added_.find(token.text);
      if (known != added_.end() && !token.has_flags) continue;
      AddedTokenRule rule;
      rule.id = token.id;
      rule.text = token.text;
      rule.special = token.special || (known != added_.end() && known->second.special);
      rule.normalized = token.normalized.value_or(!token.special);
      rule.single_word = token.single_word;
      rule.strips_left = token.strips_left;
      rule.strips_right = token.strips_right;
      MINISGL_RETURN_IF_ERROR(
          AddToken(JsonPlace(&root_.json(), "the configuration beside it"), std::move(rule)));
    }
    return {};
  }

  TokenizerParts::Role FindRole(const RoleToken& named, bool is_special) {
    TokenizerParts::Role role{named.text, std::nullopt};
    if (named.text.empty()) return role;
    role.id = FindToken(named.text);
    if (!role.id || !is_special) return role;
    const auto added = added_.find(named.text);
    if (added != added_.end()) {
      added->second.special = true;
    } else {
      AddedTokenRule rule;
      rule.id = *role.id;
      rule.text = named.text;
      rule.special = true;
      added_texts_.try_emplace(rule.id, rule.text);
      added_.emplace(named.text, rule);
    }
    return role;
  }

  void AddRoles() {
    parts_.bos = FindRole(config_.bos, true);
    parts_.eos = FindRole(config_.eos, true);
    parts_.unk = FindRole(config_.unk, false);
    parts_.pad = FindRole(config_.pad, false);
    for (const std::string& text : config_.more_special) FindRole({true, text}, true);
  }

  Status ReadBpe(const JsonPlace& model) {
    BpeOptions options;
    const JsonPlace dropout = model["dropout"];
    if (!dropout.is_null() && !(dropout.json().is_number() && dropout.json().as_double() == 0)) {
      return dropout.Error("is set; it must be null or 0");
    }
    MINISGL_ASSIGN_OR_RETURN(options.ignore_merges, model["ignore_merges"].Bool(false));
    MINISGL_ASSIGN_OR_RETURN(options.byte_fallback, model["byte_fallback"].Bool(false));
    MINISGL_ASSIGN_OR_RETURN(options.fuse_unk, model["fuse_unk"].Bool(false));
    MINISGL_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                             Affix(model, "continuing_subword_prefix"));
    MINISGL_ASSIGN_OR_RETURN(options.end_of_word_suffix, Affix(model, "end_of_word_suffix"));
    MINISGL_ASSIGN_OR_RETURN(const std::string unk, model["unk_token"].String(""));
    if (!unk.empty()) {
      options.unk_id = vocabulary_->Find(unk);
      if (!options.unk_id) {
        return model["unk_token"].Error("is \"{}\", which model.vocab does not have", Visible(unk));
      }
    }
    options.never = Marks();
    MINISGL_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges,
                             ReadMerges(model["merges"], options.continuing_subword_prefix.size()));
    MINISGL_ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(vocabulary_, merges, std::move(options)));
    parts_.model = std::make_unique<Bpe>(std::move(bpe));
    return {};
  }

  // The ids that no text has unless it is trusted.
  std::vector<TokenId> Marks() const {
    std::vector<TokenId> marks;
    for (const auto& [text, rule] : added_) {
      if (!IsOrdinaryAddedToken(rule)) marks.push_back(rule.id);
    }
    return marks;
  }

  Status ReadWordPiece(const JsonPlace& model) {
    WordPieceOptions options;
    MINISGL_ASSIGN_OR_RETURN(const std::string unk, model["unk_token"].String("[UNK]"));
    const auto unk_id = vocabulary_->Find(unk);
    if (!unk_id) {
      return model["unk_token"].Error("is \"{}\", which model.vocab does not have", Visible(unk));
    }
    options.unk_id = *unk_id;
    if (!model["continuing_subword_prefix"].is_null()) {
      MINISGL_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                               Affix(model, "continuing_subword_prefix"));
    }
    constexpr int64_t kCharactersMax = 4096;
    MINISGL_ASSIGN_OR_RETURN(const int64_t characters,
                             model["max_input_chars_per_word"].Int(1, kCharactersMax, 100));
    options.characters_max = static_cast<size_t>(characters);
    options.never = Marks();
    parts_.model = std::make_unique<WordPiece>(vocabulary_, std::move(options));
    return {};
  }

  Status ReadUnigram(const JsonPlace& model) {
    UnigramOptions options;
    MINISGL_ASSIGN_OR_RETURN(const int64_t unk_id,
                             model["unk_id"].Int(0, vocabulary_->ids_end() - 1));
    options.unk_id = static_cast<TokenId>(unk_id);
    MINISGL_ASSIGN_OR_RETURN(options.byte_fallback, model["byte_fallback"].Bool(false));
    options.never = Marks();
    parts_.model = std::make_unique<Unigram>(vocabulary_, std::move(scores_), std::move(options));
    return {};
  }

  static Result<std::string> Affix(const JsonPlace& model, std::string_view key) {
    MINISGL_ASSIGN_OR_RETURN(std::string affix, model[key].String(""));
    if (affix.size() > kPieceBytesMax) {
      return model[key].Error("has {} bytes; at most {} are supported", affix.size(),
                              kPieceBytesMax);
    }
    return affix;
  }

  Result<std::vector<BpeMerge>> ReadMerges(const JsonPlace& place, size_t prefix_bytes) const {
    if (table_ != nullptr) {
      return ResolveMerges(*vocabulary_, *table_->merges, prefix_bytes, place.path());
    }
    if (!place.json().is_array()) return place.MustBe("an array");
    const JsonMerges merges(place.json().as_array());
    return ResolveMerges(*vocabulary_, merges, prefix_bytes, place.path());
  }

  Status ReadSteps() {
    const std::optional<Json> llama = LlamaSteps();
    const JsonPlace steps = llama ? JsonPlace(&*llama) : root_;
    MINISGL_ASSIGN_OR_RETURN(parts_.normalizer, Normalizer::Read(steps["normalizer"]));
    MINISGL_ASSIGN_OR_RETURN(parts_.pre_tokenizer, PreTokenizer::Read(steps["pre_tokenizer"]));
    MINISGL_ASSIGN_OR_RETURN(parts_.decoder, SpellingDecoder::Read(steps["decoder"]));
    return {};
  }

  // The reference builds its Llama class from the vocabulary alone, whatever steps the file
  // defines: spaces become "▁", and one is inserted before the text (if "legacy", before every run
  // between added tokens). Returns these steps if the file and the configuration ask for that
  // class.
  std::optional<Json> LlamaSteps() const {
    if (config_.tokenizer_class != "LlamaTokenizer" &&
        config_.tokenizer_class != "LlamaTokenizerFast") {
      return std::nullopt;
    }
    static const Json kPrependAndReplace = *ParseJson(
        R"([{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}])");
    const Json* spaces = root_["normalizer"].json().Find("normalizers");
    if (spaces == nullptr || *spaces != kPrependAndReplace || !root_["pre_tokenizer"].is_null()) {
      return std::nullopt;
    }
    const bool legacy = config_.legacy_is_named && config_.legacy;
    Json steps = *ParseJson(R"({
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": false},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]}})");
    const char* scheme = legacy ? "always" : "first";
    if (!config_.add_prefix_space) scheme = "never";
    steps.as_object()[0].second.Set("prepend_scheme", scheme);
    if (config_.add_prefix_space) {
      steps.as_object()[1].second.as_object()[1].second.Append(
          *ParseJson(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})"));
    }
    return steps;
  }

  // As in the reference, add_bos_token and add_eos_token of the configuration have no effect beside
  // a tokenizer.json.
  Status ReadSurroundings() {
    const auto has_id = [this](int64_t id) {
      return id < kVocabularyIdsMax && (vocabulary_->Has(static_cast<TokenId>(id)) ||
                                        added_texts_.contains(static_cast<TokenId>(id)));
    };
    MINISGL_ASSIGN_OR_RETURN(Surroundings around,
                             ReadPostProcessor(root_["post_processor"], has_id));
    parts_.prefix = std::move(around.prefix);
    parts_.suffix = std::move(around.suffix);
    parts_.pair = std::move(around.pair);
    return {};
  }

  JsonPlace root_;
  const TokenizerConfig& config_;
  const TokenTable* const table_;
  TokenizerParts parts_;
  std::shared_ptr<Vocabulary> vocabulary_;
  std::vector<double> scores_;                             // of a Unigram model, by id
  std::unordered_map<std::string, AddedTokenRule> added_;  // by text
  std::unordered_map<TokenId, std::string> added_texts_;
};

}  // namespace

bool IsModelTypeRead(std::string_view type) {
  return type == "BPE" || type == "WordPiece" || type == "Unigram";
}

std::string ModelType(const Json& file) {
  const Json* model = file.Find("model");
  if (model == nullptr) return "";
  const Json* type = model->Find("type");
  if (type != nullptr && type->is_string()) return type->as_string();
  // Older files lack the key.
  return type == nullptr && model->Find("merges") != nullptr ? "BPE" : "";
}

Result<Json> ReadTokenizerJson(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  JsonLimits limits;
  limits.values_max = kFileValuesMax;
  Result<Json> json = ParseJson(text, limits);
  if (!json.ok()) return OrFileKind(json.status().WithPrefix(Visible(path, 400)), text, path);
  if (!json->is_object()) {
    return BadInput("{}: the file contains {}; it must contain an object", Visible(path, 400),
                    json->TypeName());
  }
  return json;
}

Result<TokenizerParts> ReadTokenizerParts(const Json& file, const TokenizerConfig& config,
                                          const TokenTable* table) {
  return TokenizerJsonReader(file, config, table).Run();
}

}  // namespace minisgl::text
