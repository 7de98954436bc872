// The Tokenizer of sentencepiece models: special tokens and trust are decided here, plain runs go
// to the library.
//
// How untrusted text is kept from becoming a special token or a role marker: the library is given a
// model in which every such piece has a spelling that no text can have (it is not UTF-8), so it
// cannot find one whatever it reads. In trusted text the same spellings are matched here, longest
// first, before the library sees what lies between.
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
    kPlain,  // text as the library has it, "▁" for a space
    kByte,
    kUnknown,
    kSpecial,  // control: never part of a text
    kMarker,   // not special, but text only where it is trusted: role markers, added tokens
    kAdded,    // a marker whose text is not the library's: "▁" in it is itself
    kUnused,   // an id that nothing defines
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
  // A run between matched spellings, and what stands before it.
  struct Run;

  SentencePieceTokenizer() = default;
  const Token& Get(TokenId id) const;  // an unused one where there is no such id
  void DefineTokens(const SentencePieceModel& model, const TokenizerConfig& config);
  void DefineRoles(const SentencePieceModel& model, const TokenizerConfig& config);
  // The token that the files name, or that the model was trained with where they name none.
  // REQUIRES IndexSpellings().
  Role FindRole(const RoleToken& named, int32_t trained_id) const;
  void MakeSpecial(TokenId id);
  void IndexSpellings();
  void IndexSymbols();
  Status MakeEncoders(SentencePieceModel model);
  // False where the sink wanted no more.
  Result<bool> EncodeRun(const Run& run, const TokenSink& sink) const;
  Result<bool> EncodeLongRun(const Run& run, const TokenSink& sink) const;
  void CountPieceBytes(const SentencePieceModel& model);

  std::vector<Token> tokens_;
  std::unordered_map<std::string, TokenId> ids_;  // by spelling
  SymbolMatcher symbols_;                         // what only trusted text may spell
  Role bos_, eos_, unk_, pad_;
  bool add_bos_ = false, add_eos_ = false, legacy_ = true;
  bool add_dummy_prefix_ = false, prefix_in_prompts_ = false, drops_every_leading_space_ = false;
  std::string unk_surface_;
  // With the model's own dummy prefix, and without any (the same object where the model adds none).
  std::shared_ptr<const SentencePieceEncoder> at_start_, inside_;
  // Where white space at the ends of a text is dropped: for a part that begins with some.
  std::shared_ptr<const SentencePieceEncoder> behind_space_;
  std::optional<TokenId> fused_id_;  // stands for a run of unknown characters
  size_t piece_bytes_max_ = 0;       // of a text, that one token may stand for; 0: any number
};

}  // namespace minisgl::text
