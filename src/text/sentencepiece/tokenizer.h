// The Tokenizer of sentencepiece models. It handles special tokens and trust; the library encodes
// the plain text between them.
//
// Untrusted text cannot become a special token or a role marker, because the library is given a
// model in which every such piece has a spelling that no text can have (it is not UTF-8). In
// trusted text, the true spellings are matched here, longest first, before the library encodes the
// text between them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "minisgl/text/tokenizer.h"
#include "text/sentencepiece/model.h"
#include "text/symbol_matcher.h"
#include "text/tokenizer_config.h"

namespace minisgl::text {

class SentencePieceEncoder;  // hides the library

class SentencePieceTokenizer : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(SentencePieceModel model,
                                                   TokenizerConfig config);
  ~SentencePieceTokenizer() override;

  Result<std::vector<TokenId>> EncodeText(std::string_view text) const override;
  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override;
  Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const override;
  int64_t MinTokens(std::span<const TextPiece> pieces) const override;
  std::vector<TokenId> Prefix() const override;
  std::vector<TokenId> Suffix() const override;
  std::string Decode(std::span<const TokenId> ids, bool keep_special) const override;
  TokenId vocab_size() const override { return static_cast<TokenId>(tokens_.size()); }
  bool IsSpecial(TokenId id) const override { return Get(id).kind == Kind::kSpecial; }
  std::string PieceText(TokenId id) const override { return Get(id).text; }
  std::string PieceBytes(TokenId id) const override;
  std::optional<TokenId> IdOf(std::string_view spelling) const override;
  std::optional<TokenId> bos_id() const override { return bos_.id; }
  std::optional<TokenId> eos_id() const override { return eos_.id; }
  std::string bos_token() const override { return bos_.text; }
  std::string eos_token() const override { return eos_.text; }
  std::string unk_token() const override { return unk_.text; }
  std::string pad_token() const override { return pad_.text; }
  bool DropsLeadingSpace() const override {
    return add_dummy_prefix_ || drops_every_leading_space_;
  }
  bool DropsEveryLeadingSpace() const override { return drops_every_leading_space_; }

 private:
  enum class Kind : uint8_t {
    kPlain,  // text as in the library, "▁" for a space
    kByte,
    kUnknown,
    kSpecial,  // control: never part of a text
    kMarker,   // not special, but recognised only in trusted text: role markers, added tokens
    kAdded,    // a marker defined outside the library's model: "▁" in its text is literal
    kUnused,   // an id without a definition
  };
  struct Token {
    std::string text;
    Kind kind = Kind::kUnused;
    bool strips_left = false, strips_right = false;
  };
  struct Role {
    std::string text;
    std::optional<TokenId> id;
  };
  // A run of text between matched spellings.
  struct Run;
  std::optional<SymbolMatcher::Match> FindSymbol(std::string_view text, size_t at,
                                                 size_t trusted_end) const;

  SentencePieceTokenizer() = default;
  const Token& Get(TokenId id) const;  // a token of kind kUnused if the id does not exist
  void DefineTokens(const SentencePieceModel& model, const TokenizerConfig& config);
  void DefineRoles(const SentencePieceModel& model, const TokenizerConfig& config);
  // Returns the token that the files name, or the one from training if they name none.
  // REQUIRES: IndexSpellings() was called.
  Role FindRole(const RoleToken& named, int32_t trained_id) const;
  void MakeSpecial(TokenId id);
  void IndexSpellings();
  void IndexSymbols();
  Status MakeEncoders(SentencePieceModel model);
  // These return false if the sink stopped the encoding.
  Result<bool> EncodeRun(const Run& run, const TokenSink& sink) const;
  Result<bool> EncodeLongRun(const Run& run, const TokenSink& sink) const;
  void CountPieceBytes(const SentencePieceModel& model);

  std::vector<Token> tokens_;
  std::unordered_map<std::string, TokenId> ids_;  // by spelling
  SymbolMatcher symbols_;                         // spellings recognised in trusted text
  SymbolMatcher text_symbols_;  // and those recognised everywhere (text_symbols.h)
  bool has_text_symbols_ = false;
  Role bos_, eos_, unk_, pad_;
  bool add_bos_ = false, add_eos_ = false, legacy_ = true;
  bool add_dummy_prefix_ = false, prefix_in_prompts_ = false, drops_every_leading_space_ = false;
  std::string unk_surface_;
  // With the model's own dummy prefix, and without (the same object if the model adds none).
  std::shared_ptr<const SentencePieceEncoder> at_start_, inside_;
  // For models that drop white space at the ends of a text: encodes a part after white space.
  std::shared_ptr<const SentencePieceEncoder> after_space_;
  std::optional<TokenId> fused_id_;  // encodes a run of unknown characters of any length
  size_t piece_bytes_max_ = 0;       // upper bound on the text of one token in bytes; 0: unbounded
};

}  // namespace minisgl::text
