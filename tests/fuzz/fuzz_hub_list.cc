// Any text as the hub's list of files: either rejected with one readable line, or a list whose
// chosen files have names that stay below their folder, and hashes that can be names of files.
#include <cstdint>
#include <string>
#include <vector>

#include "hub/blob_hash.h"
#include "hub/repository_files.h"
#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"

namespace {

void CheckReadable(const minisgl::Status& status) {
  const std::string& message = status.message();
  MINISGL_CHECK(minisgl::Visible(message, message.size()) == message, "not one readable line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace minisgl;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto list = hub::ParseRepositoryList(text);
  if (!list.ok()) {
    CheckReadable(list.status());
    return 0;
  }
  for (const std::vector<std::string>& patterns : {std::vector<std::string>{}, {"*"}}) {
    const auto chosen = hub::ChooseFiles(list->files, patterns);
    if (!chosen.ok()) CheckReadable(chosen.status());
    for (const hub::RepositoryFile& file : chosen.ok() ? *chosen : list->files) {
      MINISGL_CHECK(file.hash.empty() || hub::IsBlobHash(file.hash), "a hash that is none");
      if (!chosen.ok()) continue;
      MINISGL_CHECK(
          !file.name.starts_with("/") && ("/" + file.name + "/").find("/../") == std::string::npos,
          "a name that leaves its folder");
    }
  }
  return 0;
}
