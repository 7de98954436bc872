// Calls the sentencepiece library and converts its errors and exceptions to Status.
#include "text/sentencepiece/encoder.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <string>
#include <utility>

#include "minisgl/base/out_of_memory.h"
#include "minisgl/base/utf8.h"

namespace minisgl::text {

struct SentencePieceEncoder::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceEncoder::SentencePieceEncoder(std::unique_ptr<Library> library)
    : library_(std::move(library)) {}
SentencePieceEncoder::~SentencePieceEncoder() = default;

Result<std::shared_ptr<const SentencePieceEncoder>> SentencePieceEncoder::Create(
    const SentencePieceModel& model) {
  auto library = std::make_unique<Library>();
  const std::string bytes = model.Write();
  try {
    // An exception must not unwind the library's protocol buffers while they are being parsed:
    // their destructors follow pointers that were never set.
    const ExitOnOutOfMemory guard;
    const auto status = library->processor.LoadFromSerializedProto(bytes);
    if (!status.ok())
      return BadInput("rejected by the sentencepiece library: {}", Visible(status.message(), 200));
  } catch (const std::exception& error) {
    return BadInput("rejected by the sentencepiece library: {}", Visible(error.what(), 200));
  }
  return std::shared_ptr<const SentencePieceEncoder>(new SentencePieceEncoder(std::move(library)));
}

namespace {

// Runs `encode`, a call of the library on a text of `bytes` bytes.
template <typename Encode>
Status CallLibrary(size_t bytes, Encode encode) {
  try {
    const sentencepiece::util::Status status = encode();
    if (status.ok()) return {};
    return MakeStatus(StatusCode::kInternal, "sentencepiece cannot encode a text of {} bytes: {}",
                      bytes, Visible(status.message(), 200));
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory, "no memory to encode a text of {} bytes", bytes);
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "sentencepiece cannot encode a text of {} bytes: {}",
                      bytes, Visible(error.what(), 200));
  }
}

}  // namespace

Status SentencePieceEncoder::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  if (text.empty()) return {};
  return CallLibrary(text.size(), [&] {
    std::vector<int> encoded;
    auto status = library_->processor.Encode(text, &encoded);
    if (status.ok()) ids->insert(ids->end(), encoded.begin(), encoded.end());
    return status;
  });
}

Status SentencePieceEncoder::Encode(std::string_view text, std::vector<PlacedToken>* tokens) const {
  if (text.empty()) return {};
  return CallLibrary(text.size(), [&] {
    sentencepiece::ImmutableSentencePieceText encoded;
    auto status = library_->processor.Encode(text, encoded.mutable_proto());
    if (!status.ok()) return status;
    for (size_t i = 0; i < encoded.pieces_size(); ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      tokens->push_back({piece.begin(), static_cast<TokenId>(piece.id())});
    }
    return status;
  });
}

}  // namespace minisgl::text
