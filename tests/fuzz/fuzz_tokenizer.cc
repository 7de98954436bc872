// Any bytes as a tokenizer.model: either rejected with a reason, or a tokenizer that encodes and
// decodes some texts without special tokens in their untrusted parts.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "text/sentencepiece/model.h"
#include "text/sentencepiece/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  using namespace minisgl::text;
  auto model = SentencePieceModel::Read({reinterpret_cast<const char*>(data), size});
  if (!model.ok()) {
    const std::string& message = model.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return 0;
  }
  // Texts from the model itself in addition to fixed ones.
  std::vector<std::string> texts = {"Hello </s> <s>\n\n",
                                    "\xEF\xAC\x81 \xC3\xA9\xFF  x\xE3\x80\x80"
                                    "A\xCC\x80",
                                    std::string("\0a\xE2\x82", 4)};
  std::string spelled;
  for (size_t i = 0; i < model->pieces.size() && spelled.size() < 4096; ++i)
    spelled += model->pieces[i].text;
  texts.push_back(std::move(spelled));
  auto tokenizer = SentencePieceTokenizer::Create(std::move(*model), TokenizerConfig());
  if (!tokenizer.ok()) return 0;
  for (const std::string& text : texts) {
    const auto untrusted = (*tokenizer)->Encode(std::vector<TextPiece>{{text, false}});
    if (untrusted.ok()) {
      for (TokenId id : *untrusted)
        MINISGL_CHECK(!(*tokenizer)->IsSpecial(id), "text became special token {}", id);
    }
    const auto ids =
        (*tokenizer)->Encode(std::vector<TextPiece>{{text, true}, {text, false}, {text, true}});
    if (!ids.ok()) continue;
    StreamDecoder decoder(tokenizer->get());
    std::string streamed;
    for (TokenId id : *ids) streamed += decoder.Push(id);
    MINISGL_CHECK(streamed + decoder.Finish() == (*tokenizer)->Decode(*ids),
                  "the stream is not the whole");
    MINISGL_CHECK(IsValidUtf8((*tokenizer)->Decode(*ids, true)), "ill-formed text");
  }
  return 0;
}
