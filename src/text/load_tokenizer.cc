// Chooses the file of a model directory from which its tokenizer is loaded, and loads it.
#include <filesystem>
#include <optional>
#include <utility>

#include "minisgl/base/file_kind.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/pipeline_tokenizer.h"
#include "text/rank_file.h"
#include "text/sentencepiece/model.h"
#include "text/sentencepiece/tokenizer.h"
#include "text/tekken.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json/loader.h"
#include "text/vocabulary_file.h"

namespace minisgl::text {
namespace {

constexpr uint64_t kModelBytesMax = uint64_t{256} << 20;
constexpr TokenId kAddedIdsMax = 65536;  // ids beyond the model's

Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& model_dir,
                                                     const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kModelBytesMax));
  if (IsRankFile(bytes)) {
    return BadInput(
        "{}: this is a tiktoken rank file, which does not define how text is cut into words; put "
        "the model's tokenizer.json beside it",
        Visible(path, 400));
  }
  Result<SentencePieceModel> model = SentencePieceModel::Read(bytes);
  if (!model.ok()) {
    return OrFileKind(model.status().WithPrefix(Visible(path, 400)), bytes, path);
  }
  const auto ids_max = static_cast<TokenId>(model->pieces.size()) + kAddedIdsMax;
  MINISGL_ASSIGN_OR_RETURN(TokenizerConfig config, TokenizerConfig::Load(model_dir, ids_max));
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      SentencePieceTokenizer::Create(std::move(*model), std::move(config));
  if (!tokenizer.ok()) return tokenizer.status().WithPrefix(Visible(path, 400));
  return tokenizer;
}

// `file` is the content of `path`, the tokenizer.json of `model_dir`.
Result<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& model_dir,
                                                     const std::string& path, const Json& file) {
  MINISGL_ASSIGN_OR_RETURN(const TokenizerConfig config,
                           TokenizerConfig::Load(model_dir, kVocabularyIdsMax));
  const auto make = [&]() -> Result<std::unique_ptr<Tokenizer>> {
    MINISGL_ASSIGN_OR_RETURN(TokenizerParts parts, ReadTokenizerParts(file, config));
    return MakePipelineTokenizer(std::move(parts));
  };
  Result<std::unique_ptr<Tokenizer>> tokenizer = make();
  if (!tokenizer.ok()) return tokenizer.status().WithPrefix(Visible(path, 400));
  return tokenizer;
}

}  // namespace
}  // namespace minisgl::text

namespace minisgl {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  if (IsGgufFile(model_dir)) return text::LoadGgufTokenizer(model_dir);
  const std::filesystem::path dir(model_dir);
  // A dangling link is an error: the model's own tokenizer must not be silently replaced.
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", text::kTekkenFile, text::kVocabularyFile}) {
    MINISGL_RETURN_IF_ERROR(CheckLink((dir / name).string()));
  }
  const auto has = [&](const char* name) { return IsListed((dir / name).string()); };
  const bool has_model = has("tokenizer.model"), has_tekken = has(text::kTekkenFile);
  if (has("tokenizer.json")) {
    const std::string path = (dir / "tokenizer.json").string();
    MINISGL_ASSIGN_OR_RETURN(const Json file, text::ReadTokenizerJson(path));
    // A sentencepiece model or tekken.json stands for itself beside a file that was made from it.
    const std::string type = text::ModelType(file);
    const bool is_first = text::IsModelTypeRead(type) && type != "Unigram";
    if (is_first || !(has_model || has_tekken)) {
      return text::LoadTokenizerJson(model_dir, path, file);
    }
  }
  if (has_model) return text::LoadSentencePiece(model_dir, (dir / "tokenizer.model").string());
  if (has_tekken) return text::LoadTekken(model_dir);
  if (has(text::kVocabularyFile)) {
    MINISGL_ASSIGN_OR_RETURN(const Json file, text::ReadVocabularyFile(model_dir));
    return text::LoadTokenizerJson(model_dir, (dir / text::kVocabularyFile).string(), file);
  }
  return MakeStatus(StatusCode::kNoInput,
                    "{}: no tokenizer (tokenizer.json, a sentencepiece tokenizer.model, "
                    "tekken.json, or the vocab.txt of BERT)",
                    Visible(dir.string(), 400));
}

}  // namespace minisgl
