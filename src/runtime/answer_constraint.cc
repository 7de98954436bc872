#include "runtime/answer_constraint.h"

#include <algorithm>
#include <new>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::runtime {
namespace {

// Forced text is encoded after so many tokens of the text before it, because where tokens end
// depends on what stands around.
constexpr size_t kContextTokens = 4;
constexpr size_t kForcedBytesMax = 256;

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer* tokenizer, int64_t vocab_size,
                                     bool spells_control)
    : tokenizer_(tokenizer), spells_control_(spells_control) {
  std::vector<std::string> bytes(static_cast<size_t>(vocab_size));
  const auto known = std::min<int64_t>(vocab_size, tokenizer->vocab_size());
  for (TokenId id = 0; id < known; ++id) bytes[static_cast<size_t>(id)] = BytesOf(id);
  masks_ = std::make_unique<TokenMasks>(bytes, std::span<const TokenId>());
}

std::string GrammarVocabulary::BytesOf(TokenId id) const {
  if (id >= tokenizer_->vocab_size()) return "";
  if (spells_control_) return MarkedBytes(*tokenizer_, id);
  return IsControl(id) ? "" : tokenizer_->PieceBytes(id);
}

AnswerConstraint::AnswerConstraint(std::shared_ptr<const CompiledGrammar> grammar,
                                   std::shared_ptr<const GrammarVocabulary> vocabulary,
                                   std::vector<TokenId> stop_ids, RequestId id, MaskMaker* maker)
    : vocabulary_(std::move(vocabulary)),
      stop_ids_(std::move(stop_ids)),
      matcher_(std::move(grammar)),
      id_(id),
      maker_(maker) {}

bool AnswerConstraint::IsStop(TokenId token) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

bool AnswerConstraint::MayEnd() const { return ended_ || matcher_.IsAccepting(); }

bool AnswerConstraint::MustEnd() const { return ended_ || matcher_.MustEnd(); }

bool AnswerConstraint::FillText(std::span<uint32_t> mask, int64_t* work_left) {
  const TokenMasks& masks = vocabulary_->masks();
  if (masks.FillKnown(matcher_, mask)) return true;
  if (late_ == nullptr || late_after_ != tokens_) {
    auto made = std::make_shared<LateMask>(vocabulary_, &masks, matcher_);
    if (made->work().GoOn(work_left)) {
      std::ranges::copy(made->work().mask(), mask.begin());
      return true;
    }
    if (maker_ == nullptr) {
      masks.Fill(matcher_, mask);
      return true;
    }
    late_ = std::move(made);
    late_after_ = tokens_;
    maker_->Add(id_, late_);
  }
  if (!late_->done()) return false;
  if (late_->failed()) {
    late_.reset();
    throw std::bad_alloc();
  }
  std::ranges::copy(late_->work().mask(), mask.begin());
  return true;
}

MaskOutcome AnswerConstraint::FillMask(std::span<uint32_t> mask, int64_t* work_left) {
  if (ended_) return MaskOutcome::kNone;
  if (!FillText(mask, work_left)) return MaskOutcome::kLater;
  bool any = std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
  // Not an end of the text: what could follow is not known.
  if (!any && matcher_.IsAtLimit()) return MaskOutcome::kNone;
  const bool may_end = matcher_.IsAccepting();
  for (const TokenId id : stop_ids_) {
    const auto word = static_cast<size_t>(id) / 32;
    if (id < 0 || word >= mask.size()) continue;
    const uint32_t bit = uint32_t{1} << (id % 32);
    if (may_end) {
      mask[word] |= bit;
      any = true;
    } else if (vocabulary_->IsControl(id)) {
      mask[word] &= ~bit;  // allowed by its spelling inside a thought, which must go on
    }
  }
  return any ? MaskOutcome::kMade : MaskOutcome::kNone;
}

bool AnswerConstraint::Accept(TokenId token) {
  if (ended_) return false;
  const size_t before = matcher_.num_bytes();
  const bool is_stop = IsStop(token);
  if (is_stop && matcher_.IsAccepting()) {
    ended_ = true;
  } else {
    if (is_stop && vocabulary_->IsControl(token)) return false;
    const std::string bytes = vocabulary_->BytesOf(token);
    if (bytes.empty() || !matcher_.Accept(bytes)) return false;
  }
  tokens_.push_back(token);
  num_bytes_.push_back(before);
  return true;
}

void AnswerConstraint::RollBack(int64_t count) {
  MINISGL_CHECK(count <= std::ssize(tokens_), "{} of {} tokens are taken back", count,
                tokens_.size());
  if (count == 0) return;
  const size_t left = tokens_.size() - static_cast<size_t>(count);
  matcher_.RollbackTo(num_bytes_[left]);
  tokens_.resize(left);
  num_bytes_.resize(left);
  ended_ = false;
}

std::string AnswerConstraint::RecentText(size_t* num_tokens) const {
  *num_tokens = 0;
  while (*num_tokens < std::min(tokens_.size(), kContextTokens) &&
         !vocabulary_->IsControl(tokens_[tokens_.size() - 1 - *num_tokens])) {
    ++*num_tokens;
  }
  std::string text;
  for (size_t i = tokens_.size() - *num_tokens; i < tokens_.size(); ++i) {
    text += vocabulary_->BytesOf(tokens_[i]);
  }
  return text;
}

std::optional<TokenId> AnswerConstraint::ForcedControl(std::string_view forced) const {
  constexpr size_t kSpellingMax = 64;
  const Tokenizer& tokenizer = vocabulary_->tokenizer();
  for (size_t size = 2; size <= std::min(forced.size(), kSpellingMax); ++size) {
    const std::optional<TokenId> id = tokenizer.IdOf(forced.substr(1, size - 1));
    if (id && vocabulary_->IsControl(*id)) return id;
  }
  return std::nullopt;
}

// The last token is left out unless the text ends with it: a longer one may be what the model
// writes. A control token is one by itself.
std::vector<TokenId> AnswerConstraint::ForcedTokens(int32_t count) {
  if (ended_) return {};
  std::string forced = matcher_.ForcedBytes(kForcedBytesMax);
  if (forced.size() < 2 || count < 1) return {};
  if (forced.front() == kControlMark) {
    const std::optional<TokenId> control = ForcedControl(forced);
    return control ? std::vector<TokenId>{*control} : std::vector<TokenId>();
  }
  const size_t end_of_text = forced.find(kControlMark);
  const bool is_whole = end_of_text != std::string::npos;
  forced.resize(std::min(end_of_text, forced.size()));
  size_t num_known = 0;
  const std::string known = RecentText(&num_known);
  const Tokenizer& tokenizer = vocabulary_->tokenizer();
  Result<std::vector<TokenId>> encoded = tokenizer.EncodeText(known + forced);
  const auto first_known = tokens_.end() - static_cast<std::ptrdiff_t>(num_known);
  if (encoded.ok() && encoded->size() > num_known &&
      std::equal(first_known, tokens_.end(), encoded->begin())) {
    encoded->erase(encoded->begin(), encoded->begin() + static_cast<std::ptrdiff_t>(num_known));
  } else {
    encoded = tokenizer.EncodeText(forced);
    if (!encoded.ok()) return {};
  }
  Matcher end = matcher_;
  end.Accept(forced);
  if (!is_whole && !end.MustEnd() && !encoded->empty()) encoded->pop_back();
  if (std::ssize(*encoded) > count) encoded->resize(static_cast<size_t>(count));
  return *std::move(encoded);
}

}  // namespace minisgl::runtime
