// Classifies the ids, indexes the spellings that trusted text may contain, and encodes text run by
// run.
#include "text/sentencepiece/tokenizer.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "text/sentencepiece/encoder.h"
#include "text/text_symbols.h"

namespace minisgl::text {
namespace {

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// True for white space and single characters: user-defined symbols that encode ordinary text.
bool IsOrdinarySymbol(std::string_view text) {
  if (IsTextSymbol(text)) return true;
  if (Utf8CharLength(text) == text.size()) return true;
  while (!text.empty()) {
    if (text.starts_with(kSpaceSymbol)) {
      text.remove_prefix(kSpaceSymbol.size());
    } else if (IsAsciiSpace(text[0])) {
      text.remove_prefix(1);
    } else {
      return false;
    }
  }
  return true;
}

std::string WithSpaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceSymbol)) {
      out += ' ';
      piece.remove_prefix(kSpaceSymbol.size());
    } else {
      out += piece[0];
      piece.remove_prefix(1);
    }
  }
  return out;
}

// A range of trusted text, which may spell special tokens. Adjacent trusted pieces are joined.
struct Span {
  size_t begin = 0, end = 0;
};

struct JoinedBytes {
  std::string_view text;
  std::vector<Span> trusted;
  std::string storage;  // holds the text if pieces were joined
};

// Joins `pieces`, which must outlive the result.
Result<JoinedBytes> JoinBytes(std::span<const TextPiece> pieces) {
  JoinedBytes joined;
  size_t total = 0;
  for (const TextPiece& piece : pieces) {
    if (piece.text.size() > kTextBytesMax - total) {
      return BadInput("the text is too long (more than {} MiB); shorten it", kTextBytesMax >> 20);
    }
    total += piece.text.size();
  }
  if (pieces.size() == 1) {
    joined.text = pieces[0].text;
    if (pieces[0].trusted && total > 0) joined.trusted.push_back({0, total});
    return joined;
  }
  joined.storage.reserve(total);
  for (const TextPiece& piece : pieces) {
    const size_t begin = joined.storage.size();
    joined.storage += piece.text;
    if (!piece.trusted || piece.text.empty()) continue;
    if (!joined.trusted.empty() && joined.trusted.back().end == begin) {
      joined.trusted.back().end = joined.storage.size();
    } else {
      joined.trusted.push_back({begin, joined.storage.size()});
    }
  }
  return joined;
}

}  // namespace

struct SentencePieceTokenizer::Run {
  std::string_view text;
  bool with_prefix = false;  // the model's dummy prefix goes before it
};

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(SentencePieceModel model,
                                                                  TokenizerConfig config) {
  std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer);
  tokenizer->legacy_ = config.legacy;
  tokenizer->add_dummy_prefix_ = model.add_dummy_prefix;
  tokenizer->prefix_in_prompts_ = model.add_dummy_prefix && config.add_prefix_space;
  tokenizer->drops_every_leading_space_ = model.remove_extra_whitespaces;
  tokenizer->unk_surface_ = model.unk_surface;
  tokenizer->DefineTokens(model, config);
  tokenizer->IndexSpellings();
  tokenizer->DefineRoles(model, config);
  tokenizer->IndexSymbols();
  tokenizer->CountPieceBytes(model);
  MINISGL_RETURN_IF_ERROR(tokenizer->MakeEncoders(std::move(model)));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

void SentencePieceTokenizer::DefineTokens(const SentencePieceModel& model,
                                          const TokenizerConfig& config) {
  tokens_.resize(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    Kind kind = Kind::kPlain;
    if (piece.type == PieceType::kControl) kind = Kind::kSpecial;
    if (piece.type == PieceType::kUnknown) kind = Kind::kUnknown;
    if (piece.type == PieceType::kByte) kind = Kind::kByte;
    if (piece.type == PieceType::kUserDefined && !IsOrdinarySymbol(piece.text))
      kind = Kind::kMarker;
    tokens_[id] = {piece.text, kind};
  }
  if (!config.added.empty()) {
    tokens_.resize(std::max(tokens_.size(), static_cast<size_t>(config.added.rbegin()->first) + 1));
  }
  for (const auto& [id, added] : config.added) {
    Token& token = tokens_[id];
    const bool same_text = token.text == added.text || WithSpaces(token.text) == added.text;
    // The files list ordinary pieces too ("\n", "▁▁"). Such an entry changes the kind of a token
    // only if its text differs or it is special.
    if (!added.special && same_text) {
      token.strips_left = added.strips_left;
      token.strips_right = added.strips_right;
      continue;
    }
    if (token.kind == Kind::kByte || token.kind == Kind::kUnknown) continue;
    token = {added.text, added.special ? Kind::kSpecial : Kind::kAdded, added.strips_left,
             added.strips_right};
  }
}

SentencePieceTokenizer::Role SentencePieceTokenizer::FindRole(const RoleToken& named,
                                                              int32_t trained_id) const {
  if (named.is_named) return {named.text, IdOf(named.text)};
  if (trained_id >= 0 && trained_id < vocab_size() && IsSpecial(trained_id)) {
    return {tokens_[trained_id].text, trained_id};
  }
  return {};
}

void SentencePieceTokenizer::MakeSpecial(TokenId id) {
  Kind& kind = tokens_[id].kind;
  if (kind != Kind::kByte && kind != Kind::kUnknown) kind = Kind::kSpecial;
}

void SentencePieceTokenizer::DefineRoles(const SentencePieceModel& model,
                                         const TokenizerConfig& config) {
  bos_ = FindRole(config.bos, model.bos_id);
  eos_ = FindRole(config.eos, model.eos_id);
  pad_ = FindRole(config.pad, model.pad_id);
  unk_ = FindRole(config.unk, -1);
  if (!config.unk.is_named) {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].kind == Kind::kUnknown) unk_ = {tokens_[id].text, static_cast<TokenId>(id)};
    }
  }
  for (const Role* role : {&bos_, &eos_}) {
    if (role->id) MakeSpecial(*role->id);
  }
  for (const std::string& text : config.more_special) {
    const Role role = FindRole({true, text}, -1);
    if (role.id) MakeSpecial(*role.id);
  }
  add_bos_ = config.add_bos;
  add_eos_ = config.add_eos;
}

// As in the library, a reserved piece hides a plain piece with the same spelling.
void SentencePieceTokenizer::IndexSpellings() {
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const Token& token = tokens_[id];
    if (token.text.empty()) continue;
    if (token.kind == Kind::kPlain) {
      ids_.try_emplace(token.text, static_cast<TokenId>(id));
    } else {
      ids_[token.text] = static_cast<TokenId>(id);
    }
  }
}

void SentencePieceTokenizer::IndexSymbols() {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    const auto id = static_cast<TokenId>(i);
    // Prompts may spell the unknown token only if the configuration names it, as in the reference.
    const bool is_symbol = token.kind == Kind::kSpecial || token.kind == Kind::kMarker ||
                           token.kind == Kind::kAdded ||
                           (token.kind == Kind::kUnknown && unk_.text == token.text);
    if (!is_symbol || token.text.empty() || token.text.size() > kSymbolBytesMax) continue;
    symbols_.Add(token.text, id);
    if (token.kind == Kind::kMarker) symbols_.Add(WithSpaces(token.text), id);
    if (token.kind == Kind::kAdded && IsTextSymbol(token.text)) {
      text_symbols_.Add(token.text, id);
      has_text_symbols_ = true;
    }
  }
}

// Computes the upper bound on the bytes of input text that one token encodes. There is no bound if
// the normaliser may drop characters, if one token encodes any run of unknown characters, or if a
// token absorbs the white space next to it.
void SentencePieceTokenizer::CountPieceBytes(const SentencePieceModel& model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::kUnknown && !model.byte_fallback) {
      fused_id_ = static_cast<TokenId>(id);
    }
  }
  bool bounded = model.charsmap.empty() && !model.remove_extra_whitespaces && !fused_id_;
  size_t longest = 1;
  for (const Token& token : tokens_) {
    bounded = bounded && !token.strips_left && !token.strips_right;
    longest = std::max(longest, token.text.size());
  }
  piece_bytes_max_ = bounded ? longest : 0;
}

Status SentencePieceTokenizer::MakeEncoders(SentencePieceModel model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece& piece = model.pieces[id];
    const Kind kind = tokens_[id].kind;
    if (kind == Kind::kPlain || kind == Kind::kByte || kind == Kind::kUnused) continue;
    // The library matches well-formed UTF-8, which never contains the byte FF.
    piece.text = fmt::format("\xFF{}", id);
    if (kind != Kind::kUnknown) piece.type = PieceType::kControl;
  }
  MINISGL_ASSIGN_OR_RETURN(at_start_, SentencePieceEncoder::Create(model));
  inside_ = at_start_;
  if (model.add_dummy_prefix) {
    model.add_dummy_prefix = false;
    MINISGL_ASSIGN_OR_RETURN(inside_, SentencePieceEncoder::Create(model));
    if (model.remove_extra_whitespaces) after_space_ = at_start_;
  } else if (model.remove_extra_whitespaces) {
    model.add_dummy_prefix = true;
    MINISGL_ASSIGN_OR_RETURN(after_space_, SentencePieceEncoder::Create(model));
  }
  return {};
}

const SentencePieceTokenizer::Token& SentencePieceTokenizer::Get(TokenId id) const {
  static const Token kPadding;
  return id >= 0 && id < vocab_size() ? tokens_[id] : kPadding;
}

Result<std::vector<TokenId>> SentencePieceTokenizer::EncodeText(std::string_view text) const {
  if (text.size() > kTextBytesMax) {
    return BadInput("the text is too long (more than {} MiB); shorten it", kTextBytesMax >> 20);
  }
  std::vector<TokenId> ids;
  const auto take = [&ids](std::span<const TokenId> more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return true;
  };
  MINISGL_RETURN_IF_ERROR(EncodeRun({text, /*with_prefix=*/true}, take).status());
  return ids;
}

Result<bool> SentencePieceTokenizer::EncodeRun(const Run& run, const TokenSink& sink) const {
  if (run.text.size() > kEncodeWindowBytes) return EncodeLongRun(run, sink);
  std::vector<TokenId> ids;
  MINISGL_RETURN_IF_ERROR((run.with_prefix ? at_start_ : inside_)->Encode(run.text, &ids));
  return sink(ids);
}

Result<bool> SentencePieceTokenizer::EncodeLongRun(const Run& run, const TokenSink& sink) const {
  bool at_start = true;  // no token yet: so far the library has dropped everything
  const auto encode = [&](size_t begin, size_t end, std::vector<PlacedToken>* tokens) -> Status {
    const auto is_space = [&](size_t at) { return IsAsciiSpace(run.text[at]); };
    const SentencePieceEncoder* encoder = inside_.get();
    if (at_start) {
      encoder = (run.with_prefix ? at_start_ : inside_).get();
    } else if (after_space_ != nullptr && (is_space(begin) || is_space(begin - 1))) {
      encoder = after_space_.get();
    }
    MINISGL_RETURN_IF_ERROR(encoder->Encode(run.text.substr(begin, end - begin), tokens));
    for (PlacedToken& token : *tokens) token.begin += begin;
    at_start = at_start && tokens->empty();
    return {};
  };
  return EncodeInWindows(run.text, encode, fused_id_, sink);
}

Result<std::vector<TokenId>> SentencePieceTokenizer::Encode(
    std::span<const TextPiece> pieces) const {
  std::vector<TokenId> ids;
  MINISGL_RETURN_IF_ERROR(EncodeTo(pieces, [&ids](std::span<const TokenId> more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return true;
  }));
  return ids;
}

// The longest symbol at `at` that ends by `trusted_end`, or that is text everywhere.
std::optional<SymbolMatcher::Match> SentencePieceTokenizer::FindSymbol(std::string_view text,
                                                                       size_t at,
                                                                       size_t trusted_end) const {
  std::optional<SymbolMatcher::Match> match;
  if (at < trusted_end) match = symbols_.LongestPrefix(text.substr(at, trusted_end - at));
  if (!has_text_symbols_) return match;
  const auto anywhere = text_symbols_.LongestPrefix(text.substr(at));
  return anywhere && (!match || anywhere->length > match->length) ? anywhere : match;
}

Status SentencePieceTokenizer::EncodeTo(std::span<const TextPiece> pieces,
                                        const TokenSink& sink) const {
  MINISGL_ASSIGN_OR_RETURN(const JoinedBytes joined, JoinBytes(pieces));
  // Computed here, after `joined` has moved: the bytes of a short string move with it.
  const std::string_view text = joined.storage.empty() ? joined.text : joined.storage;
  size_t run_begin = 0;
  bool with_prefix = prefix_in_prompts_;
  size_t next = 0;  // index of the first trusted span that ends behind `at`
  for (size_t at = 0; at < text.size();) {
    while (next < joined.trusted.size() && joined.trusted[next].end <= at) ++next;
    const Span* const span = next < joined.trusted.size() ? &joined.trusted[next] : nullptr;
    if (span == nullptr && !has_text_symbols_) break;
    const bool is_trusted = span != nullptr && span->begin <= at;
    if (!is_trusted && !has_text_symbols_) {
      at = span->begin;
      continue;
    }
    const auto match = FindSymbol(text, at, is_trusted ? span->end : at);
    if (!match) {
      ++at;
      continue;
    }
    const Token& token = tokens_[match->id];
    size_t run_end = at;
    if (token.strips_left) {
      while (run_end > run_begin && IsAsciiSpace(text[run_end - 1])) --run_end;
    }
    std::string_view run = text.substr(run_begin, run_end - run_begin);
    // Before a marker at the start, the library emits only the prefix, which is encoded as a
    // space.
    const bool lone_prefix = run.empty() && with_prefix && token.kind == Kind::kMarker;
    if (lone_prefix) run = " ";
    MINISGL_ASSIGN_OR_RETURN(const bool more, EncodeRun({run, with_prefix && !lone_prefix}, sink));
    if (!more || !sink(std::span(&match->id, 1))) return {};
    at += match->length;
    if (token.strips_right) {
      while (at < text.size() && IsAsciiSpace(text[at])) ++at;
    }
    run_begin = at;
    with_prefix = prefix_in_prompts_ && legacy_ && token.kind != Kind::kMarker;
  }
  MINISGL_ASSIGN_OR_RETURN(const bool more, EncodeRun({text.substr(run_begin), with_prefix}, sink));
  (void)more;
  return {};
}

int64_t SentencePieceTokenizer::MinTokens(std::span<const TextPiece> pieces) const {
  if (piece_bytes_max_ == 0) return 0;
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  return static_cast<int64_t>(bytes / piece_bytes_max_);
}

std::vector<TokenId> SentencePieceTokenizer::Prefix() const {
  return add_bos_ && bos_.id ? std::vector<TokenId>{*bos_.id} : std::vector<TokenId>{};
}

std::vector<TokenId> SentencePieceTokenizer::Suffix() const {
  return add_eos_ && eos_.id ? std::vector<TokenId>{*eos_.id} : std::vector<TokenId>{};
}

std::string SentencePieceTokenizer::Decode(std::span<const TokenId> ids, bool keep_special) const {
  StreamDecoder decoder(this, /*at_start=*/true, keep_special);
  std::string text;
  for (TokenId id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

std::string SentencePieceTokenizer::PieceBytes(TokenId id) const {
  const Token& token = Get(id);
  switch (token.kind) {
    case Kind::kPlain:
    case Kind::kMarker:
      return WithSpaces(token.text);
    case Kind::kByte:
      return std::string(1, static_cast<char>(BytePieceValue(token.text)));
    case Kind::kUnknown:
      return unk_surface_;
    case Kind::kAdded:
      return token.text;
    case Kind::kSpecial:
    case Kind::kUnused:
      break;
  }
  return "";
}

std::optional<TokenId> SentencePieceTokenizer::IdOf(std::string_view spelling) const {
  const auto it = ids_.find(std::string(spelling));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

}  // namespace minisgl::text
