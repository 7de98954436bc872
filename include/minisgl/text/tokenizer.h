// Text to token ids and back, by the tokenizer of a model directory: tokenizer.json (byte-pair
// encoding), sentencepiece's tokenizer.model or tekken.json.
//
// Immutable once loaded; usable from any thread. Hostile files and texts give errors, never
// crashes: every id in tokenizer files is below vocab_size(), a piece is at most 4 KiB, a text at
// most kTextBytesMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"

namespace minisgl {

inline constexpr size_t kTextBytesMax = size_t{64} << 20;

// A run of text and where it came from. Special tokens are recognised only inside trusted text:
// what a message's content spells is text (`</s>` there is four characters), and a spelling that
// begins in one and ends in the other is text too. Adjacent pieces are tokenised together, as one
// text.
//
// The same holds for what a model defines as one symbol without calling it special (sentencepiece's
// user-defined symbols, as `<|user|>` or `<table>`, and added tokens): in untrusted text its
// spelling gives ordinary tokens that decode to it. White space and single characters are excepted:
// a model that defines "\n" or a digit as a symbol has no other ordinary spelling of it, so they
// are that symbol everywhere.
struct TextPiece {
  std::string text;
  bool trusted = true;
};

// Takes the ids of a text in order, as they are found; some calls bring none. False: no more are
// wanted.
using TokenSink = std::function<bool(std::span<const TokenId>)>;

// Token ids to text as they come, by rules of a tokenizer's own. Used by one thread.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // As StreamDecoder's.
  virtual std::string Push(TokenId id) = 0;
  virtual std::string Finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Reads the first of these that is there: tokenizer.json if its model is of type BPE,
  // tokenizer.model, tekken.json; and tokenizer_config.json, special_tokens_map.json and
  // added_tokens.json beside the first two. kNoInput where the directory has no tokenizer,
  // kBadInput for a damaged one or a kind that is not supported; no other file is tried instead of
  // a damaged one.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& model_dir);

  // Ids of plain text: nothing in it is a special token, nothing is added.
  virtual Result<std::vector<TokenId>> EncodeText(std::string_view text) const = 0;
  // Ids of pieces in order; nothing is added.
  virtual Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const = 0;
  // As Encode, but the ids go to `sink` part by part: memory is a few bytes for each of the text
  // (texts longer than 64 KiB are encoded in parts), and after a false from `sink` nothing more is
  // done. The status is OK then too.
  virtual Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, Encode(pieces));
    sink(ids);
    return {};
  }
  // A number of tokens that `pieces` have at least, by their bytes alone; 0 where nothing can be
  // said, as where a normaliser may drop any of them.
  virtual int64_t MinTokens(std::span<const TextPiece> pieces) const {
    (void)pieces;
    return 0;
  }
  // What the tokenizer puts before a raw prompt by itself (as <s>), and after it (rarely anything).
  virtual std::vector<TokenId> Prefix() const = 0;
  virtual std::vector<TokenId> Suffix() const = 0;

  // The text of all of `ids` at once, by the library's own rules. Special tokens are left out
  // unless `keep_special`, and then spelled. Here and below an id that this tokenizer does not have
  // is no text, and not special: a model's vocabulary may be padded beyond its tokenizer's, and
  // such an id can be sampled.
  virtual std::string Decode(std::span<const TokenId> ids, bool keep_special = false) const = 0;
  // Decode for StreamDecoder, which says what the arguments mean; this outlives it. Null where
  // StreamDecoder's own rules hold, which are sentencepiece's, on PieceBytes().
  virtual std::unique_ptr<TokenDecoder> NewDecoder(bool /*at_start*/, bool /*keep_special*/) const {
    return nullptr;
  }

  virtual TokenId vocab_size() const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;  // control tokens: never part of an answer's text
  virtual std::string PieceText(TokenId id) const = 0;  // the spelling: "<s>", "▁the", "<0x0A>"
  // The bytes that one token adds to a text: "▁" is a space; a byte token its byte; a special token
  // nothing.
  virtual std::string PieceBytes(TokenId id) const = 0;
  virtual std::optional<TokenId> IdOf(std::string_view spelling) const = 0;

  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual std::string bos_token() const = 0;  // "" where there is none
  virtual std::string eos_token() const = 0;
  virtual std::string unk_token() const = 0;
  virtual std::string pad_token() const = 0;

  // Whether decoding drops one leading space of the whole text (sentencepiece's add_dummy_prefix).
  virtual bool DropsLeadingSpace() const = 0;
  // Whether it drops all of them (sentencepiece's remove_extra_whitespaces). Implies
  // DropsLeadingSpace().
  virtual bool DropsEveryLeadingSpace() const { return false; }
};

}  // namespace minisgl
