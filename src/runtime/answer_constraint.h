// The constraint of one answer: a grammar's matcher over the bytes of a tokenizer's tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/grammar/matcher.h"
#include "minisgl/grammar/token_masks.h"
#include "minisgl/text/thought_reader.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/token_constraint.h"
#include "runtime/mask_maker.h"

namespace minisgl::runtime {

// The tokens of a model as bytes. A control token has none, so no grammar allows it; or, if
// `spells_control`, kControlMark and its spelling, so that a grammar can name it and no text can
// match it. Immutable; thread-safe.
class GrammarVocabulary {
 public:
  // `tokenizer` outlives it. `vocab_size`: of the model; ids past the tokenizer's have no text.
  GrammarVocabulary(const Tokenizer* tokenizer, int64_t vocab_size, bool spells_control);

  std::string BytesOf(TokenId id) const;
  bool IsControl(TokenId id) const { return tokenizer_->IsSpecial(id); }
  const TokenMasks& masks() const { return *masks_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  bool spells_control_;
  std::unique_ptr<TokenMasks> masks_;
};

class AnswerConstraint final : public TokenConstraint {
 public:
  // stop_ids: the tokens that end the answer. They may come where the text may end; one that is no
  // control token also where its text may follow.
  // maker: finishes masks that take long, for `id`, and outlives it; null: none comes later.
  AnswerConstraint(std::shared_ptr<const CompiledGrammar> grammar,
                   std::shared_ptr<const GrammarVocabulary> vocabulary,
                   std::vector<TokenId> stop_ids, RequestId id = 0, MaskMaker* maker = nullptr);

  // The unit of work is that of MaskWork.
  MaskOutcome FillMask(std::span<uint32_t> mask, int64_t* work_left) override;
  bool Accept(TokenId token) override;
  void RollBack(int64_t count) override;
  bool MayEnd() const override;
  bool MustEnd() const override;
  std::vector<TokenId> ForcedTokens(int32_t count) override;

 private:
  bool IsStop(TokenId token) const;
  // The mask of the text alone, without ends. False if it comes later.
  bool FillText(std::span<uint32_t> mask, int64_t* work_left);
  // The control token whose bytes are the first of `forced`; nothing if there is none.
  std::optional<TokenId> ForcedControl(std::string_view forced) const;
  // The text of the last few tokens since a control token, with the number of these tokens.
  std::string RecentText(size_t* num_tokens) const;

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<TokenId> stop_ids_;
  Matcher matcher_;
  std::vector<TokenId> tokens_;    // accepted
  std::vector<size_t> num_bytes_;  // accepted before each of them
  bool ended_ = false;             // the last token is an end token
  RequestId id_;
  MaskMaker* maker_;
  // The mask after these tokens, which comes later or came. Kept until another one comes later: it
  // must be there when it is asked for again, whatever the grammar remembers.
  std::shared_ptr<LateMask> late_;
  std::vector<TokenId> late_after_;
};

}  // namespace minisgl::runtime
