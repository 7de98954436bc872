// Token spellings to text ("decoder" of tokenizer.json), as they come.
//
// A decoder is a chain of stages; each takes tokens and gives tokens, whole or in parts, and holds
// back only what later tokens can still change. The immutable SpellingDecoder makes a DecoderRun
// for each text; a run is used by one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

// One stage at work on one text.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  // Takes a part of a token, `ends_token` with the last one, and appends to `next`'s input.
  virtual void Push(std::string_view part, bool ends_token) = 0;
  virtual void Finish() = 0;
  DecoderStage* next = nullptr;
};

class DecoderRun {
 public:
  explicit DecoderRun(std::vector<std::unique_ptr<DecoderStage>> stages);
  ~DecoderRun();
  // The text that is certain once this token is known.
  std::string Push(std::string_view spelling);
  std::string Finish();

 private:
  class Output;
  std::string Take();
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  std::unique_ptr<Output> output_;
};

class SpellingDecoder {
 public:
  // What one kind of stage does.
  class Kind {
   public:
    virtual ~Kind() = default;
    // `at_start`: the first token begins a text. `is_fused`: all tokens come as one.
    virtual std::unique_ptr<DecoderStage> Begin(bool at_start, bool is_fused) const = 0;
    // The bytes for `part`, which stands in the middle of a text.
    virtual std::string Bytes(std::string part, bool is_fused) const = 0;
    virtual bool FusesTokens() const { return false; }
    // Whether it takes a space off the beginning of a text.
    virtual bool DropsLeadingSpace(bool /*is_fused*/) const { return false; }
  };

  // `place` holds null (tokens are joined by spaces) or an object with "type".
  static Result<std::unique_ptr<const SpellingDecoder>> Read(const JsonPlace& place);
  // Spellings are raw bytes of the text; ill-formed UTF-8 becomes U+FFFD.
  static std::unique_ptr<const SpellingDecoder> RawBytes();

  std::unique_ptr<DecoderRun> Begin(bool at_start) const;
  // The bytes that one token adds to a text.
  std::string TokenBytes(std::string_view spelling) const;
  bool DropsLeadingSpace() const;

 private:
  std::vector<std::unique_ptr<const Kind>> kinds_;
};

}  // namespace minisgl::text
