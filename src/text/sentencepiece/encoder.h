// The one door to the sentencepiece library: plain text to ids with a model that was checked.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "text/encode_windows.h"
#include "text/sentencepiece/model.h"

namespace minisgl::text {

// Immutable; usable from any thread.
class SentencePieceEncoder {
 public:
  static Result<std::shared_ptr<const SentencePieceEncoder>> Create(
      const SentencePieceModel& model);
  ~SentencePieceEncoder();

  // Appends the ids of `text`, with their places in it. Takes up to 250 bytes for each of it.
  Status Encode(std::string_view text, std::vector<PlacedToken>* tokens) const;
  // Appends the ids alone.
  Status Encode(std::string_view text, std::vector<TokenId>* ids) const;

 private:
  struct Library;
  explicit SentencePieceEncoder(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace minisgl::text
