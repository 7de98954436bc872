// Any text as a chat template: either rejected with one readable line, or rendered within bounds,
// with contents as they are and in the form that it takes.
#include <cstdint>
#include <string>
#include <string_view>

#include "minisgl/base/utf8.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  static const ChatInput input = [] {
    ChatInput made;
    made.messages = *ParseJson(
        R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi </s>"},
        {"role": "assistant", "content": [{"type": "text", "text": "\u00e9"}],
         "tool_calls": [{"name": "f", "n": 1.5}]}])");
    made.tools = *ParseJson(R"([{"name": "f", "parameters": {"a": [1, null, true]}}])");
    made.bos_token = "<s>";
    made.eos_token = "</s>";
    return made;
  }();
  const auto check = [](const Status& status) {
    const std::string& message = status.message();
    MINISGL_CHECK(status.code() == StatusCode::kBadInput, "code of: {}", message);
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line: {}",
                  Visible(message));
  };
  auto chat = ChatTemplate::Parse({reinterpret_cast<const char*>(data), size}, "fuzz.jinja");
  if (!chat.ok()) {
    check(chat.status());
    return 0;
  }
  const auto pieces = (*chat)->Render(input);
  if (!pieces.ok()) {
    check(pieces.status());
    return 0;
  }
  size_t bytes = 0;
  for (const TextPiece& piece : *pieces) bytes += piece.text.size();
  MINISGL_CHECK(bytes <= size_t{16} << 20, "{} bytes of output", bytes);
  ChatInput shaped = input;
  const auto whole = RenderMessages(**chat, &shaped);
  const Status left_out =
      whole.ok() ? CheckNothingIsLeftOut(**chat, shaped, *whole) : whole.status();
  if (!left_out.ok()) check(left_out);
  return 0;
}
