// Memory of hostile templates: at most 16 MiB, counted byte by byte, for parsing and for rendering;
// and memory for rendering long conversations.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "faults/fault_shim.h"
#include "minisgl/base/json.h"
#include "minisgl/text/chat_template.h"
#include "text/hostile_templates.h"

namespace minisgl::faults {
namespace {

constexpr int64_t kTemplateBytesMax = int64_t{16} << 20;

ChatInput InputOf(const std::string& content) {
  ChatInput input;
  input.messages =
      Json(Json::Array{}).Append(Json(Json::Object{}).Set("role", "user").Set("content", content));
  return input;
}

TEST(TemplateMemoryTest, HostileTemplatesTakeLittle) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "bytes are the same without the sanitizer, which has these templates in text";
#endif
  const ChatInput input = InputOf("x");
  int64_t most = 0;
  for (const Hostile& hostile : HostileTemplates()) {
    Arm({});
    Status status;
    {
      auto chat = ChatTemplate::Parse(hostile.source, "hostile.jinja");
      status = chat.ok() ? (*chat)->Render(input).status() : chat.status();
    }
    Disarm();
    EXPECT_FALSE(status.ok()) << hostile.what;
    EXPECT_LE(PeakBytes(), kTemplateBytesMax) << hostile.what << ": " << status.message();
    most = std::max(most, PeakBytes());
  }
  RecordProperty("most_kib", static_cast<int>(most >> 10));
}

// The bounds grow with the conversation, because its rendering is as long.
TEST(TemplateMemoryTest, LongConversationsAreRendered) {
  const auto chat = ChatTemplate::Parse(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{{ m | tojson }}{% endfor %}",
      "t");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  for (const size_t size : {size_t{1} << 10, size_t{1} << 20, size_t{7} << 20}) {
    const auto pieces = (*chat)->Render(InputOf(std::string(size, 'y')));
    ASSERT_TRUE(pieces.ok()) << size << ": " << pieces.status().message();
    size_t bytes = 0;
    for (const TextPiece& piece : *pieces) bytes += piece.text.size();
    EXPECT_GT(bytes, 2 * size);
  }
  // Each byte as an escape of six bytes.
  const auto escaped = (*chat)->Render(InputOf(std::string(size_t{1} << 20, '\x01')));
  EXPECT_TRUE(escaped.ok()) << escaped.status().message();
}

}  // namespace
}  // namespace minisgl::faults
