// The only interface to the sentencepiece library: plain text to ids, with a validated model.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "text/encode_windows.h"
#include "text/sentencepiece/model.h"

namespace minisgl::text {

// Immutable; thread-safe.
class SentencePieceEncoder {
 public:
  static Result<std::shared_ptr<const SentencePieceEncoder>> Create(
      const SentencePieceModel& model);
  ~SentencePieceEncoder();

  // Appends the ids of `text` and their places in it. Needs up to 250 bytes of memory per byte of
  // text.
  Status Encode(std::string_view text, std::vector<PlacedToken>* tokens) const;
  // Appends only the ids.
  Status Encode(std::string_view text, std::vector<TokenId>* ids) const;

 private:
  struct Library;
  explicit SentencePieceEncoder(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace minisgl::text
