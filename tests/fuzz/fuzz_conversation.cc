// Any text as a saved conversation: either rejected with one readable line that names the file and
// the line, or messages that are the same after saving and loading.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "chat/chat_file.h"
#include "minisgl/base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  static const std::string stem =
      std::filesystem::temp_directory_path() / fmt::format("minisgl-conversation-{}", getpid());
  const std::string path = stem + ".jsonl", again_path = stem + "-again.jsonl";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto messages = chat::LoadConversation(path);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!messages.ok()) {
    const std::string& message = messages.status().message();
    MINISGL_CHECK(messages.status().code() == StatusCode::kBadInput, "code of: {}", message);
    MINISGL_CHECK(message.starts_with(path), "names no file: {}", message);
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return 0;
  }
  MINISGL_CHECK(!messages->empty(), "no messages and no error");
  const Status saved = chat::SaveConversation(again_path, *messages, /*overwrite=*/true);
  const auto again = chat::LoadConversation(again_path);
  std::filesystem::remove(again_path, ignored);
  MINISGL_CHECK(saved.ok() && again.ok() && again->size() == messages->size(), "is not saved");
  for (size_t i = 0; i < again->size(); ++i) {
    MINISGL_CHECK((*again)[i].role == (*messages)[i].role &&
                      (*again)[i].content == ReplaceInvalidUtf8((*messages)[i].content),
                  "message {} changed", i);
  }
  return 0;
}
