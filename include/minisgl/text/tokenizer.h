// The tokenizer of a model directory, text to token ids and back: tokenizer.json (byte-pair
// encoding, WordPiece, Unigram), a sentencepiece tokenizer.model, tekken.json, the vocab.txt of
// BERT, or the tokenizer of a GGUF file.
//
// Immutable after loading; thread-safe. Malformed files and texts give errors, never crashes. Every
// id in tokenizer files is below vocab_size(); a piece has at most 4 KiB, a text at most
// kTextBytesMax.
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

// A run of text and its origin. Special tokens are recognised only inside trusted text: in a
// message's content, `</s>` is four characters. A spelling that begins in trusted and ends in
// untrusted text (or the reverse) is ordinary text too. Adjacent pieces are tokenised together, as
// one text.
//
// The same holds for symbols that a model defines without marking them special (added tokens, and
// sentencepiece's user-defined symbols such as `<|user|>` or `<tool_call>`): in untrusted text
// their spelling becomes ordinary tokens that decode to it, because templates and readers of
// answers take many of them for marks. The exceptions become their symbol everywhere, as in the
// reference: white space and single characters, of which a model that defines "\n" or a digit as a
// symbol has no other encoding, words, and tags of HTML that format text, such as `<table>`.
struct TextPiece {
  std::string text;
  bool trusted = true;
};

// Receives the ids of a text in order, as they are found; a call may have none. Returns false to
// stop the encoding.
using TokenSink = std::function<bool(std::span<const TokenId>)>;

// The ids that a tokenizer adds around two texts that a model reads as one: before the first,
// between both and after the second.
struct PairFrame {
  std::vector<TokenId> before, between, after;
  // How many ids of `between` are of type 0, as the first text. The others, the second text and
  // `after` are of type 1. Unset: all are of type 0.
  std::optional<size_t> types_from;
};

// Incremental decoding by rules specific to one tokenizer. Used by one thread.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // As in StreamDecoder.
  virtual std::string Push(TokenId id) = 0;
  virtual std::string Finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Loads the first of these files that exists: tokenizer.json (if its model is of type BPE or
  // WordPiece), tokenizer.model, tekken.json, tokenizer.json (Unigram), vocab.txt. With all but
  // tekken.json, also reads tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json. kNoInput if the directory has no tokenizer,
  // kBadInput if it is damaged or not supported; no other file replaces a damaged one.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& model_dir);

  // Encodes plain text: recognises no special tokens, adds no prefix or suffix.
  virtual Result<std::vector<TokenId>> EncodeText(std::string_view text) const = 0;
  // Encodes pieces in order; adds no prefix or suffix.
  virtual Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const = 0;
  // As Encode, but passes the ids to `sink` part by part. Needs a few bytes of memory per byte of
  // text (texts longer than 64 KiB are encoded in parts). Stops if `sink` returns false; the status
  // is OK then too.
  virtual Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, Encode(pieces));
    sink(ids);
    return {};
  }
  // Returns a lower bound on the number of tokens of `pieces`, from their size alone; 0 if there is
  // no useful bound, for example because a normaliser may drop characters.
  virtual int64_t MinTokens(std::span<const TextPiece> pieces) const {
    (void)pieces;
    return 0;
  }
  // The ids that the tokenizer adds before a raw prompt (such as <s>) and after it (usually none).
  virtual std::vector<TokenId> Prefix() const = 0;
  virtual std::vector<TokenId> Suffix() const = 0;
  // The same for two texts; null if the tokenizer's files do not say it. Lives as long as this.
  virtual const PairFrame* Pair() const { return nullptr; }

  // Returns the text of `ids`, by the rules of the reference library. Special tokens are spelled if
  // `keep_special`, otherwise omitted. Here and below, an unknown id has no text and is not
  // special: a model's vocabulary may be padded beyond its tokenizer's, and such an id can be
  // sampled.
  virtual std::string Decode(std::span<const TokenId> ids, bool keep_special = false) const = 0;
  // Returns an incremental decoder, with StreamDecoder's arguments; this tokenizer must outlive it.
  // Null if StreamDecoder's own rules apply (sentencepiece's, on PieceBytes()).
  virtual std::unique_ptr<TokenDecoder> NewDecoder(bool /*at_start*/, bool /*keep_special*/) const {
    return nullptr;
  }

  virtual TokenId vocab_size() const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;  // a control token, never part of an answer's text
  virtual std::string PieceText(TokenId id) const = 0;  // the spelling: "<s>", "▁the", "<0x0A>"
  // The bytes that one token adds to a text: a space for "▁", its byte for a byte token, nothing
  // for a special token.
  virtual std::string PieceBytes(TokenId id) const = 0;
  virtual std::optional<TokenId> IdOf(std::string_view spelling) const = 0;

  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  virtual std::string bos_token() const = 0;  // "" if there is none
  virtual std::string eos_token() const = 0;
  virtual std::string unk_token() const = 0;
  virtual std::string pad_token() const = 0;

  // True if decoding drops one leading space of the text (sentencepiece's add_dummy_prefix).
  virtual bool DropsLeadingSpace() const = 0;
  // True if decoding drops all leading spaces (sentencepiece's remove_extra_whitespaces). Implies
  // DropsLeadingSpace().
  virtual bool DropsEveryLeadingSpace() const { return false; }
};

}  // namespace minisgl
