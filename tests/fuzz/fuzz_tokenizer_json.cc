// Any bytes as a tokenizer.json: either rejected with one readable line, or a tokenizer whose ids
// exist, whose streamed text equals the whole, and that gives no special token for untrusted text.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "text/pipeline_tokenizer.h"
#include "text/tokenizer_json/loader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  using namespace minisgl::text;
  const auto file = ParseJson({reinterpret_cast<const char*>(data), size});
  if (!file.ok()) return 0;
  auto parts = ReadTokenizerParts(*file, TokenizerConfig());
  if (!parts.ok()) {
    const std::string& message = parts.status().message();
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return 0;
  }
  // A character that the model cannot spell becomes its unknown token, which may be special.
  const Json* unknown = file->Find("model")->Find("unk_token");
  const Json* unknown_number = file->Find("model")->Find("unk_id");
  auto tokenizer = MakePipelineTokenizer(std::move(*parts));
  if (!tokenizer.ok()) return 0;
  const auto unknown_id = unknown != nullptr && unknown->is_string()
                              ? (*tokenizer)->IdOf(unknown->as_string())
                              : (*tokenizer)->IdOf("[UNK]");
  const auto is_unknown = [&](TokenId id) {
    return id == unknown_id || (unknown_number != nullptr && *unknown_number == Json(int64_t{id}));
  };

  // Texts from the model itself in addition to fixed ones.
  std::vector<std::string> texts = {"Hello </s> <s>\n\n 123", "\xEF\xAC\x81 \xC3\xA9\xFF  x",
                                    std::string("\0a\xE2\x82", 4)};
  std::string spelled;
  for (TokenId id = 0; id < (*tokenizer)->vocab_size() && spelled.size() < 2048; ++id) {
    spelled += (*tokenizer)->PieceText(id);
  }
  texts.push_back(std::move(spelled));
  for (const std::string& text : texts) {
    const auto untrusted = (*tokenizer)->Encode(std::vector<TextPiece>{{text, false}});
    if (untrusted.ok()) {
      for (TokenId id : *untrusted) {
        MINISGL_CHECK(!(*tokenizer)->IsSpecial(id) || is_unknown(id),
                      "text became special token {}", id);
      }
    }
    const auto ids =
        (*tokenizer)->Encode(std::vector<TextPiece>{{text, true}, {text, false}, {text, true}});
    if (!ids.ok()) continue;
    StreamDecoder decoder(tokenizer->get());
    std::string streamed;
    for (TokenId id : *ids) {
      MINISGL_CHECK(id >= 0 && id < (*tokenizer)->vocab_size(), "id {}", id);
      streamed += decoder.Push(id);
    }
    MINISGL_CHECK(streamed + decoder.Finish() == (*tokenizer)->Decode(*ids),
                  "the stream is not the whole");
    MINISGL_CHECK(IsValidUtf8((*tokenizer)->Decode(*ids, true)), "ill-formed text");
  }
  return 0;
}
