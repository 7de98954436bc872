// Incremental decoding of token spellings to text ("decoder" of tokenizer.json).
//
// A decoder is a chain of stages. Each stage receives tokens, whole or in parts, passes tokens to
// the next stage, and holds back only the text that later tokens can change. SpellingDecoder is
// immutable and creates a DecoderRun for each text; a run is used by one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

// One stage in the decoding of one text.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  // Receives a part of a token and passes decided text to `next`. `ends_token`: this is the last
  // part of the token.
  virtual void Push(std::string_view part, bool ends_token) = 0;
  // Passes the rest of the text to `next` and finishes it.
  virtual void Finish() = 0;
  DecoderStage* next = nullptr;
};

// The decoding of one text.
class DecoderRun {
 public:
  explicit DecoderRun(std::vector<std::unique_ptr<DecoderStage>> stages);
  ~DecoderRun();
  // Adds a token and returns the text that no later token can change.
  std::string Push(std::string_view spelling);
  // Returns the rest of the text.
  std::string Finish();

 private:
  class Output;
  std::string Take();
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  std::unique_ptr<Output> output_;
};

class SpellingDecoder {
 public:
  // One kind of stage with its parameters. Immutable.
  class Kind {
   public:
    virtual ~Kind() = default;
    // Creates a stage. `at_start`: the first token begins a text. `is_fused`: an earlier stage
    // joins all tokens to one.
    virtual std::unique_ptr<DecoderStage> Begin(bool at_start, bool is_fused) const = 0;
    // Decodes `part`, a token in the middle of a text, to bytes.
    virtual std::string Bytes(std::string part, bool is_fused) const = 0;
    // True if the stage joins all tokens to one.
    virtual bool FusesTokens() const { return false; }
    // True if the stage removes a space from the beginning of a text.
    virtual bool DropsLeadingSpace(bool /*is_fused*/) const { return false; }
  };

  // Reads a decoder from null (tokens are joined by spaces) or an object with "type".
  static Result<std::unique_ptr<const SpellingDecoder>> Read(const JsonPlace& place);
  // Returns a decoder for spellings that are raw bytes; ill-formed UTF-8 becomes U+FFFD.
  static std::unique_ptr<const SpellingDecoder> RawBytes();

  // Begins the decoding of a text. `at_start`: its first token begins a text.
  std::unique_ptr<DecoderRun> Begin(bool at_start) const;
  // Returns the bytes that one token adds to a text.
  std::string TokenBytes(std::string_view spelling) const;
  bool DropsLeadingSpace() const;

 private:
  std::vector<std::unique_ptr<const Kind>> kinds_;
};

}  // namespace minisgl::text
