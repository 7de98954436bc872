// Reads tekken.json, the configuration first: it defines how many entries of the two lists are
// used.
#include "text/tekken.h"

#include <charconv>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "minisgl/base/base64.h"
#include "minisgl/base/file_kind.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "text/tokenizer_json/bpe.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {
namespace {

constexpr uint64_t kTekkenBytesMax = uint64_t{64} << 20;  // real ones have 15 to 20 MB
constexpr uint64_t kTekkenValuesMax = 6'000'000;          // real ones 600,000: 150,000 times four
// Real tokens have at most 78 bytes. Deriving the merges looks up both parts of every split of a
// token.
constexpr size_t kTokenBytesMax = 256;
constexpr int64_t kSpecialMax = 65536;  // 1000 in real files

// The special tokens of files that do not list them, in order of id.
constexpr const char* kDefaultSpecial[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
constexpr int kLastVersionWithDefaults = 7;

class TekkenReader {
 public:
  explicit TekkenReader(const Json& file) : root_(&file) {}

  Result<TokenizerParts> Run() {
    MINISGL_RETURN_IF_ERROR(ReadConfig(root_["config"]));
    MINISGL_RETURN_IF_ERROR(ReadSpecial(root_["special_tokens"]));
    MINISGL_RETURN_IF_ERROR(ReadRanks(root_["vocab"]));
    TokenizerParts parts;
    BpeOptions options;
    options.splits_into_bytes = true;
    options.ignore_merges = true;
    MINISGL_ASSIGN_OR_RETURN(Bpe bpe, Bpe::FromRanks(vocabulary_, std::move(options)));
    parts.model = std::make_unique<Bpe>(std::move(bpe));
    parts.pre_tokenizer = PreTokenizer::IsolateMatches(std::move(*pattern_));
    parts.decoder = SpellingDecoder::RawBytes();
    for (size_t id = 0; id < special_.size(); ++id) {
      AddedTokenRule rule;
      rule.id = static_cast<TokenId>(id);
      rule.text = special_[id];
      rule.special = true;
      parts.added.push_back(std::move(rule));
    }
    parts.bos = FindRole("<s>");
    parts.eos = FindRole("</s>");
    parts.unk = FindRole("<unk>");
    parts.pad = FindRole("<pad>");
    if (parts.bos.id) parts.prefix.push_back(*parts.bos.id);
    return parts;
  }

 private:
  Status ReadConfig(const JsonPlace& config) {
    if (!config.json().is_object()) return config.MustBe("an object");
    MINISGL_ASSIGN_OR_RETURN(const std::string pattern, config["pattern"].String());
    Result<Regex> regex = Regex::Compile(pattern);
    if (!regex.ok()) return regex.status().WithPrefix("config.pattern");
    pattern_ = std::move(*regex);
    MINISGL_ASSIGN_OR_RETURN(num_special_,
                             config["default_num_special_tokens"].Int(0, kSpecialMax));
    MINISGL_ASSIGN_OR_RETURN(const int64_t size, config["default_vocab_size"].Int(
                                                     num_special_ + 256, kVocabularyIdsMax));
    num_ranks_ = size - num_special_;
    std::string version;
    MINISGL_ASSIGN_OR_RETURN(version, config["version"].String("v1"));
    const char* end = version.data() + version.size();
    if (!version.starts_with('v') ||
        std::from_chars(version.data() + 1, end, version_).ptr == version.data() + 1) {
      return config["version"].Error("is \"{}\"; it must be \"v\" and a number", Visible(version));
    }
    return {};
  }

  // Ids missing from the list are named <SPECIAL_i>.
  Status ReadSpecial(const JsonPlace& list) {
    special_.resize(static_cast<size_t>(num_special_));
    if (list.is_null()) {
      if (version_ > kLastVersionWithDefaults) {
        return list.Error("is missing or null; files since v{} must list them",
                          kLastVersionWithDefaults + 1);
      }
      if (special_.size() < std::size(kDefaultSpecial)) {
        return root_["config"]["default_num_special_tokens"].Error(
            "is {}; it must be at least {} if special_tokens is missing", special_.size(),
            std::size(kDefaultSpecial));
      }
      std::copy(std::begin(kDefaultSpecial), std::end(kDefaultSpecial), special_.begin());
    } else {
      MINISGL_RETURN_IF_ERROR(ReadSpecialList(list));
    }
    std::set<std::string_view> texts;
    for (size_t id = 0; id < special_.size(); ++id) {
      if (special_[id].empty()) special_[id] = fmt::format("<SPECIAL_{}>", id);
      if (!texts.insert(special_[id]).second) {
        return list.Error("has \"{}\" twice", Visible(special_[id]));
      }
    }
    return {};
  }

  Status ReadSpecialList(const JsonPlace& list) {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<JsonPlace> tokens, list.Elements());
    if (tokens.size() > special_.size()) {
      return list.Error("has {} tokens; config.default_num_special_tokens is {}", tokens.size(),
                        special_.size());
    }
    const auto last = static_cast<int64_t>(tokens.size()) - 1;
    for (const JsonPlace& token : tokens) {
      MINISGL_ASSIGN_OR_RETURN(const int64_t rank, token["rank"].Int(0, last));
      MINISGL_ASSIGN_OR_RETURN(std::string text, token["token_str"].String());
      if (text.empty() || text.size() > kSymbolBytesMax) {
        return token["token_str"].Error("has {} bytes; it must have 1 to {}", text.size(),
                                        kSymbolBytesMax);
      }
      if (!special_[static_cast<size_t>(rank)].empty()) {
        return token["rank"].Error("is {}, already used by \"{}\"", rank,
                                   Visible(special_[static_cast<size_t>(rank)]));
      }
      special_[static_cast<size_t>(rank)] = std::move(text);
    }
    return {};
  }

  Status ReadRanks(const JsonPlace& list) {
    if (!list.json().is_array()) return list.MustBe("an array");
    const Json::Array& array = list.json().as_array();
    if (array.size() < static_cast<size_t>(num_ranks_)) {
      return list.Error("has {} tokens; config defines {}, of which {} are special", array.size(),
                        num_ranks_ + num_special_, num_special_);
    }
    vocabulary_ = std::make_shared<Vocabulary>();
    // The file may have more tokens than the model uses; they are ignored.
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      const JsonPlace token(&array[static_cast<size_t>(rank)], fmt::format("vocab[{}]", rank));
      if (!token.json().is_object()) return token.MustBe("an object");
      MINISGL_RETURN_IF_ERROR(token["rank"].Int(rank, rank).status());
      MINISGL_ASSIGN_OR_RETURN(const std::string base64, token["token_bytes"].String());
      std::optional<std::string> bytes = DecodeBase64(base64);
      if (!bytes) return token["token_bytes"].Error("is \"{}\", not base64", Visible(base64));
      if (bytes->size() > kTokenBytesMax) {
        return token["token_bytes"].Error("has {} bytes; at most {} are supported", bytes->size(),
                                          kTokenBytesMax);
      }
      if (rank < 256 && *bytes != std::string(1, static_cast<char>(rank))) {
        return token["token_bytes"].Error("is \"{}\"; the first 256 tokens must be the bytes",
                                          Visible(base64));
      }
      const Status status = vocabulary_->Add(std::move(*bytes), rank + num_special_);
      if (!status.ok()) return status.WithPrefix(token.path());
    }
    return {};
  }

  TokenizerParts::Role FindRole(std::string_view text) const {
    for (size_t id = 0; id < special_.size(); ++id) {
      if (special_[id] == text) return {std::string(text), static_cast<TokenId>(id)};
    }
    return {};
  }

  JsonPlace root_;
  std::optional<Regex> pattern_;
  int64_t num_special_ = 0, num_ranks_ = 0;
  int version_ = 0;
  std::vector<std::string> special_;  // by id
  std::shared_ptr<Vocabulary> vocabulary_;
};

}  // namespace

Result<TokenizerParts> ReadTekkenParts(const Json& file) { return TekkenReader(file).Run(); }

Result<std::unique_ptr<Tokenizer>> LoadTekken(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / kTekkenFile).string();
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTekkenBytesMax));
  const auto make = [&]() -> Result<std::unique_ptr<Tokenizer>> {
    JsonLimits limits;
    limits.values_max = kTekkenValuesMax;
    MINISGL_ASSIGN_OR_RETURN(const Json file, ParseJson(text, limits));
    if (!file.is_object()) {
      return BadInput("the file contains {}; it must contain an object", file.TypeName());
    }
    MINISGL_ASSIGN_OR_RETURN(TokenizerParts parts, ReadTekkenParts(file));
    return MakePipelineTokenizer(std::move(parts));
  };
  Result<std::unique_ptr<Tokenizer>> tokenizer = make();
  if (!tokenizer.ok()) {
    return OrFileKind(tokenizer.status().WithPrefix(Visible(path, 400)), text, path);
  }
  return tokenizer;
}

}  // namespace minisgl::text
