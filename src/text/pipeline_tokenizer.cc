// Runs the pipeline: joins pieces, applies the steps, and tracks trusted text through
// normalisation.
#include "text/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/encode_windows.h"
#include "text/tokenizer_json/bpe.h"

namespace minisgl::text {
namespace {

// Trusted spans that are tracked through normalisation within one section; later ones count as
// untrusted there.
constexpr size_t kFollowedSpansMax = 64;

struct Joined {
  std::string_view text;  // well-formed
  std::vector<TextRange> trusted;
  std::string storage;  // holds the text if pieces were joined or repaired

  // Not stored in `text`: moving a short string moves its bytes.
  std::string_view Text() const { return storage.empty() ? text : storage; }
};

// Joins `pieces`, which must outlive the result.
Result<Joined> Join(std::span<const TextPiece> pieces) {
  size_t total = 0;
  for (const TextPiece& piece : pieces) {
    if (piece.text.size() > kTextBytesMax - total) {
      return BadInput("the text is too long (more than {} MiB); shorten it", kTextBytesMax >> 20);
    }
    total += piece.text.size();
  }
  const auto join = [&](bool repair) {
    Joined joined;
    joined.storage.reserve(total);
    for (const TextPiece& piece : pieces) {
      const size_t begin = joined.storage.size();
      if (repair) {
        joined.storage += ReplaceInvalidUtf8(piece.text);
      } else {
        joined.storage += piece.text;
      }
      if (!piece.trusted || piece.text.empty()) continue;
      if (!joined.trusted.empty() && joined.trusted.back().end == begin) {
        joined.trusted.back().end = joined.storage.size();
      } else {
        joined.trusted.push_back({begin, joined.storage.size()});
      }
    }
    return joined;
  };
  if (pieces.size() == 1 && IsValidUtf8(pieces[0].text)) {
    Joined joined;
    joined.text = pieces[0].text;
    if (pieces[0].trusted && total > 0) joined.trusted.push_back({0, total});
    return joined;
  }
  // A character may extend across pieces, so they are repaired one by one only if the whole is
  // ill-formed.
  Joined joined = join(/*repair=*/false);
  return IsValidUtf8(joined.storage) ? std::move(joined) : join(/*repair=*/true);
}

// Returns the parts of `spans` inside `range`, relative to its beginning.
std::vector<TextRange> Within(const std::vector<TextRange>& spans, const TextRange& range) {
  std::vector<TextRange> within;
  auto span = std::partition_point(spans.begin(), spans.end(),
                                   [&](const TextRange& s) { return s.end <= range.begin; });
  for (; span != spans.end() && span->begin < range.end; ++span) {
    within.push_back({std::max(span->begin, range.begin) - range.begin,
                      std::min(span->end, range.end) - range.begin});
  }
  return within;
}

}  // namespace

class PipelineTokenizer : public Tokenizer {
 public:
  PipelineTokenizer(TokenizerParts parts, AddedTokens added)
      : parts_(std::move(parts)), added_(std::move(added)) {
    ids_end_ = vocabulary().ids_end();
    for (const auto& [id, rule] : added_.rules()) ids_end_ = std::max(ids_end_, id + 1);
    for (const auto& [id, rule] : added_.rules()) added_ids_[rule.text] = id;
    piece_bytes_max_ = CountPieceBytes();
  }

  Result<std::vector<TokenId>> EncodeText(std::string_view text) const override {
    if (text.size() > kTextBytesMax) {
      return BadInput("the text is too long (more than {} MiB); shorten it", kTextBytesMax >> 20);
    }
    const TextPiece piece{std::string(text), /*trusted=*/false};
    return Encode(std::span(&piece, 1));
  }

  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override {
    std::vector<TokenId> ids;
    MINISGL_RETURN_IF_ERROR(EncodeTo(pieces, [&ids](std::span<const TokenId> more) {
      ids.insert(ids.end(), more.begin(), more.end());
      return true;
    }));
    return ids;
  }
  Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const override;
  int64_t MinTokens(std::span<const TextPiece> pieces) const override {
    if (piece_bytes_max_ == 0) return 0;
    size_t bytes = 0;
    for (const TextPiece& piece : pieces) bytes += piece.text.size();
    return static_cast<int64_t>(bytes / piece_bytes_max_);
  }

  std::vector<TokenId> Prefix() const override { return parts_.prefix; }
  std::vector<TokenId> Suffix() const override { return parts_.suffix; }
  const PairFrame* Pair() const override { return parts_.pair.get(); }

  std::string Decode(std::span<const TokenId> ids, bool keep_special) const override {
    const auto decoder = NewDecoder(/*at_start=*/true, keep_special);
    std::string text;
    for (TokenId id : ids) text += decoder->Push(id);
    return text + decoder->Finish();
  }
  std::unique_ptr<TokenDecoder> NewDecoder(bool at_start, bool keep_special) const override;

  TokenId vocab_size() const override { return ids_end_; }
  bool IsSpecial(TokenId id) const override {
    const AddedTokenRule* rule = added_.Find(id);
    return rule != nullptr && rule->special;
  }
  std::string PieceText(TokenId id) const override {
    const AddedTokenRule* rule = added_.Find(id);
    return rule != nullptr ? rule->text : vocabulary().Spelling(id);
  }
  // The spelling of `id` that the decoder receives.
  const std::string& DecodedSpelling(TokenId id) const {
    return added_.Find(id) != nullptr ? added_.DecodedText(id) : vocabulary().Spelling(id);
  }
  std::string PieceBytes(TokenId id) const override {
    const std::string& spelling = DecodedSpelling(id);
    return spelling.empty() || IsSpecial(id) ? "" : parts_.decoder->TokenBytes(spelling);
  }
  std::optional<TokenId> IdOf(std::string_view spelling) const override {
    const auto added = added_ids_.find(std::string(spelling));
    return added == added_ids_.end() ? vocabulary().Find(spelling) : added->second;
  }

  std::optional<TokenId> bos_id() const override { return parts_.bos.id; }
  std::optional<TokenId> eos_id() const override { return parts_.eos.id; }
  std::string bos_token() const override { return parts_.bos.text; }
  std::string eos_token() const override { return parts_.eos.text; }
  std::string unk_token() const override { return parts_.unk.text; }
  std::string pad_token() const override { return parts_.pad.text; }
  bool DropsLeadingSpace() const override { return parts_.decoder->DropsLeadingSpace(); }

 private:
  const Vocabulary& vocabulary() const { return parts_.model->vocabulary(); }

  // A run of text between added tokens.
  struct Run {
    std::string_view text;
    std::vector<TextRange> trusted;
    bool at_start = false;
  };
  // These return false if the sink stopped the encoding.
  Result<bool> EncodeSections(const Joined& joined, BpeScratch* scratch,
                              const TokenSink& sink) const;
  Result<bool> EncodeRun(const Run& run, BpeScratch* scratch, const TokenSink& sink) const;
  Result<bool> EncodeWords(WordList words, BpeScratch* scratch, const TokenSink& sink) const;
  Result<std::vector<TextRange>> Follow(const Run& run, const std::string& normalized) const;

  TokenizerParts parts_;
  AddedTokens added_;
  size_t CountPieceBytes() const;

  std::unordered_map<std::string, TokenId> added_ids_;  // by text
  TokenId ids_end_ = 0;
  size_t piece_bytes_max_ = 0;  // upper bound on the text of one token in bytes; 0: unbounded
};

// Upper bound on the bytes of input text that one token encodes; 0 (unbounded) if characters may be
// dropped or an added token absorbs the white space next to it.
size_t PipelineTokenizer::CountPieceBytes() const {
  const Normalizer* const normalizer = parts_.normalizer.get();
  const PreTokenizer* const pre_tokenizer = parts_.pre_tokenizer.get();
  const bool spelled = (normalizer != nullptr && normalizer->SpellsBytes()) ||
                       (pre_tokenizer != nullptr && pre_tokenizer->SpellsBytes());
  if (pre_tokenizer != nullptr && !pre_tokenizer->KeepsAll()) return 0;
  if (!parts_.model->KeepsAll(spelled)) return 0;
  size_t longest = 4;  // a character that is not a token
  for (TokenId id = 0; id < vocabulary().ids_end(); ++id) {
    longest = std::max(longest, vocabulary().Spelling(id).size());
  }
  for (const auto& [id, rule] : added_.rules()) {
    if (rule.strips_left || rule.strips_right) return 0;
    longest = std::max(longest, rule.text.size());
  }
  return longest * (normalizer == nullptr ? 1 : normalizer->ShrinkMax());
}

Status PipelineTokenizer::EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const {
  MINISGL_ASSIGN_OR_RETURN(const Joined joined, Join(pieces));
  // A pattern may search one part of a text for a long time, so it polls the sink too.
  bool wanted = true;
  const MatchBudget budget(joined.Text().size(), [&] { return wanted = wanted && sink({}); });
  BpeScratch scratch;
  const Result<bool> more = EncodeSections(
      joined, &scratch, [&](std::span<const TokenId> ids) { return wanted = wanted && sink(ids); });
  return wanted ? more.status() : Status();
}

Result<bool> PipelineTokenizer::EncodeSections(const Joined& joined, BpeScratch* scratch,
                                               const TokenSink& sink) const {
  const std::string_view text = joined.Text();
  const auto encode = [&](const AddedTokens::Section& section) -> Result<bool> {
    if (section.id) return sink(std::span(&*section.id, 1));
    const TextRange& range = section.range;
    const Run run{text.substr(range.begin, range.end - range.begin), Within(joined.trusted, range),
                  range.begin == 0};
    return EncodeRun(run, scratch, sink);
  };
  return added_.Cut(text, joined.trusted, /*normalized=*/false, encode);
}

Result<bool> PipelineTokenizer::EncodeRun(const Run& run, BpeScratch* scratch,
                                          const TokenSink& sink) const {
  std::string text(run.text);
  std::vector<TextRange> trusted = run.trusted;
  if (parts_.normalizer != nullptr) {
    MINISGL_RETURN_IF_ERROR(parts_.normalizer->Run(&text));
    if (added_.HasNormalizedMarks() && !trusted.empty()) {
      MINISGL_ASSIGN_OR_RETURN(trusted, Follow(run, text));
    }
  }
  if (!added_.HasNormalized()) {
    const size_t size = text.size();
    return EncodeWords({std::move(text), {{0, size}}, run.at_start}, scratch, sink);
  }
  const auto encode = [&](const AddedTokens::Section& section) -> Result<bool> {
    if (section.id) return sink(std::span(&*section.id, 1));
    const TextRange& range = section.range;
    return EncodeWords({text.substr(range.begin, range.end - range.begin),
                        {{0, range.end - range.begin}},
                        run.at_start && range.begin == 0},
                       scratch, sink);
  };
  return added_.Cut(text, trusted, /*normalized=*/true, encode);
}

Result<bool> PipelineTokenizer::EncodeWords(WordList words, BpeScratch* scratch,
                                            const TokenSink& sink) const {
  if (words.text.empty()) return true;
  std::vector<TokenId> ids;
  const WordSink encode = [&](WordList part) -> Result<bool> {
    const std::string_view text = part.text;
    ids.clear();
    for (const TextRange& range : part.words) {
      const std::string_view word = text.substr(range.begin, range.end - range.begin);
      if (word.size() <= kEncodeWindowBytes) {
        parts_.model->Encode(word, scratch, &ids);
        continue;
      }
      if (!sink(ids)) return false;
      ids.clear();
      MINISGL_ASSIGN_OR_RETURN(const bool wanted, parts_.model->EncodeTo(word, scratch, sink));
      if (!wanted) return false;
    }
    return sink(ids);
  };
  if (parts_.pre_tokenizer == nullptr) return encode(std::move(words));
  return parts_.pre_tokenizer->Stream(std::move(words), encode);
}

// Returns the spans of `normalized` that correspond to the trusted text of `run`. A border is
// mapped by normalising the text before it alone, which must give a prefix of `normalized`. If it
// does not (a character was composed across the border), the span counts as untrusted.
Result<std::vector<TextRange>> PipelineTokenizer::Follow(const Run& run,
                                                         const std::string& normalized) const {
  if (run.trusted.size() == 1 && run.trusted[0].end - run.trusted[0].begin == run.text.size()) {
    return std::vector<TextRange>{{0, normalized.size()}};
  }
  const auto place_of = [&](size_t border) -> Result<std::optional<size_t>> {
    if (border == 0) return std::optional<size_t>(0);
    if (border == run.text.size()) return std::optional<size_t>(normalized.size());
    std::string head(run.text.substr(0, border));
    MINISGL_RETURN_IF_ERROR(parts_.normalizer->Run(&head));
    if (!normalized.starts_with(head)) return std::optional<size_t>();
    return std::optional<size_t>(head.size());
  };
  std::vector<TextRange> followed;
  for (size_t i = 0; i < run.trusted.size() && i < kFollowedSpansMax; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const auto begin, place_of(run.trusted[i].begin));
    MINISGL_ASSIGN_OR_RETURN(const auto end, place_of(run.trusted[i].end));
    const size_t from = followed.empty() ? 0 : followed.back().end;
    if (begin && end && *begin >= from && *begin < *end) followed.push_back({*begin, *end});
  }
  return followed;
}

class PipelineTokenDecoder : public TokenDecoder {
 public:
  PipelineTokenDecoder(const PipelineTokenizer* tokenizer, std::unique_ptr<DecoderRun> run,
                       bool keep_special)
      : tokenizer_(tokenizer), run_(std::move(run)), keep_special_(keep_special) {}

  std::string Push(TokenId id) override {
    if (!keep_special_ && tokenizer_->IsSpecial(id)) return "";
    const std::string& spelling = tokenizer_->DecodedSpelling(id);
    return spelling.empty() ? "" : run_->Push(spelling);
  }
  std::string Finish() override { return run_->Finish(); }

 private:
  const PipelineTokenizer* tokenizer_;
  std::unique_ptr<DecoderRun> run_;
  bool keep_special_;
};

std::unique_ptr<TokenDecoder> PipelineTokenizer::NewDecoder(bool at_start,
                                                            bool keep_special) const {
  return std::make_unique<PipelineTokenDecoder>(this, parts_.decoder->Begin(at_start),
                                                keep_special);
}

Result<std::unique_ptr<Tokenizer>> MakePipelineTokenizer(TokenizerParts parts) {
  MINISGL_ASSIGN_OR_RETURN(AddedTokens added,
                           AddedTokens::Create(parts.added, parts.normalizer.get()));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<PipelineTokenizer>(std::move(parts), std::move(added)));
}

}  // namespace minisgl::text
