// Any bytes as token ids of two bytes, some outside the vocabulary: the streamed pieces are whole
// characters, and their concatenation equals Decode.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    auto loaded = Tokenizer::Load(MINISGL_SOURCE_DIR "/tests/models/wren");
    MINISGL_CHECK(loaded.ok(), "{}", loaded.status().message());
    return std::move(*loaded);
  }();
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < size; i += 2) {
    ids.push_back(static_cast<int16_t>(data[i] | data[i + 1] << 8));
  }
  for (bool keep_special : {false, true}) {
    StreamDecoder decoder(tokenizer.get(), /*at_start=*/true, keep_special);
    std::string text;
    for (TokenId id : ids) {
      const std::string piece = decoder.Push(id);
      MINISGL_CHECK(IsValidUtf8(piece), "a piece ends inside a character");
      text += piece;
    }
    MINISGL_CHECK(text + decoder.Finish() == tokenizer->Decode(ids, keep_special),
                  "the stream is not the whole");
  }
  return 0;
}
