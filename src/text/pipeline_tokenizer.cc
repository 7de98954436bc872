// Joining of pieces, the order of the steps, and where trusted text lies after normalisation.
#include "text/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// Spans of trusted text that are followed through normalisation within one section; those behind
// count as untrusted there.
constexpr size_t kFollowedSpansMax = 64;

struct Joined {
  std::string text;  // well-formed
  std::vector<TextRange> trusted;
};

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
    joined.text.reserve(total);
    for (const TextPiece& piece : pieces) {
      const size_t begin = joined.text.size();
      joined.text += repair ? ReplaceInvalidUtf8(piece.text) : piece.text;
      if (!piece.trusted || piece.text.empty()) continue;
      if (!joined.trusted.empty() && joined.trusted.back().end == begin) {
        joined.trusted.back().end = joined.text.size();
      } else {
        joined.trusted.push_back({begin, joined.text.size()});
      }
    }
    return joined;
  };
  // A character may lie across pieces, so they are repaired one by one only where the whole is bad.
  Joined joined = join(/*repair=*/false);
  return IsValidUtf8(joined.text) ? std::move(joined) : join(/*repair=*/true);
}

// What of `spans` lies in `range`, counted from its beginning.
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
  }

  Result<std::vector<TokenId>> EncodeText(std::string_view text) const override {
    if (text.size() > kTextBytesMax) {
      return BadInput("the text is too long (more than {} MiB); shorten it", kTextBytesMax >> 20);
    }
    const TextPiece piece{std::string(text), /*trusted=*/false};
    return Encode(std::span(&piece, 1));
  }

  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override;

  std::vector<TokenId> Prefix() const override { return parts_.prefix; }
  std::vector<TokenId> Suffix() const override { return parts_.suffix; }

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
  // What the decoder is given for `id`.
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
  const Vocabulary& vocabulary() const { return parts_.bpe->vocabulary(); }

  // A run of text between added tokens.
  struct Run {
    std::string_view text;
    std::vector<TextRange> trusted;
    bool at_start = false;
  };
  Status EncodeRun(const Run& run, BpeScratch* scratch, std::vector<TokenId>* ids) const;
  Status EncodeWords(WordList words, BpeScratch* scratch, std::vector<TokenId>* ids) const;
  Result<std::vector<TextRange>> Follow(const Run& run, const std::string& normalized) const;

  TokenizerParts parts_;
  AddedTokens added_;
  std::unordered_map<std::string, TokenId> added_ids_;  // by text
  TokenId ids_end_ = 0;
};

Result<std::vector<TokenId>> PipelineTokenizer::Encode(std::span<const TextPiece> pieces) const {
  MINISGL_ASSIGN_OR_RETURN(const Joined joined, Join(pieces));
  const std::string_view text = joined.text;
  BpeScratch scratch;
  std::vector<TokenId> ids;
  for (const auto& section : added_.Cut(text, joined.trusted, /*normalized=*/false)) {
    if (section.id) {
      ids.push_back(*section.id);
      continue;
    }
    const TextRange& range = section.range;
    const Run run{text.substr(range.begin, range.end - range.begin), Within(joined.trusted, range),
                  range.begin == 0};
    MINISGL_RETURN_IF_ERROR(EncodeRun(run, &scratch, &ids));
  }
  return ids;
}

Status PipelineTokenizer::EncodeRun(const Run& run, BpeScratch* scratch,
                                    std::vector<TokenId>* ids) const {
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
    return EncodeWords({std::move(text), {{0, size}}, run.at_start}, scratch, ids);
  }
  for (const auto& section : added_.Cut(text, trusted, /*normalized=*/true)) {
    const TextRange& range = section.range;
    if (section.id) {
      ids->push_back(*section.id);
      continue;
    }
    MINISGL_RETURN_IF_ERROR(EncodeWords({text.substr(range.begin, range.end - range.begin),
                                         {{0, range.end - range.begin}},
                                         run.at_start && range.begin == 0},
                                        scratch, ids));
  }
  return {};
}

Status PipelineTokenizer::EncodeWords(WordList words, BpeScratch* scratch,
                                      std::vector<TokenId>* ids) const {
  if (words.text.empty()) return {};
  if (parts_.pre_tokenizer != nullptr) MINISGL_RETURN_IF_ERROR(parts_.pre_tokenizer->Run(&words));
  const std::string_view text = words.text;
  for (const TextRange& word : words.words) {
    parts_.bpe->Encode(text.substr(word.begin, word.end - word.begin), scratch, ids);
  }
  return {};
}

// Where the trusted text of `run` lies in `normalized`: what comes before a border, normalised
// alone, must be how the whole begins. Where it is not (a character composed across the border),
// the span counts as untrusted.
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

}  // namespace minisgl
