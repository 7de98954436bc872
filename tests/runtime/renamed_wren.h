// The demo model with some of its tokens renamed to control tokens. It samples them in place of the
// words, so it has reasoning tags that can be distinguished from text.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "minisgl/base/ids.h"

namespace minisgl {

// Appends one field of a sentencepiece model, which is a protocol buffer: bytes after their length.
inline std::string LengthPrefixed(char key, const std::string& bytes) {
  std::string field(1, key);
  size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) field += static_cast<char>(0x80 | (size & 0x7f));
  return field + static_cast<char>(size) + bytes;
}

// The pieces come first in the file, each a field 1, in the order of their ids.
inline std::string WithControlTokens(const std::string& model,
                                     const std::map<TokenId, std::string>& spellings) {
  constexpr char kPieces = 0x0a, kPiece = 0x0a;
  const std::string type_control = {0x18, 0x03};
  std::string changed;
  size_t at = 0;
  for (TokenId id = 0; at < model.size() && model[at] == kPieces; ++id) {
    size_t size = 0, key_end = at + 1;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(model.at(key_end++));
      size |= static_cast<size_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    const auto named = spellings.find(id);
    changed += named == spellings.end()
                   ? model.substr(at, key_end - at + size)
                   : LengthPrefixed(kPieces, LengthPrefixed(kPiece, named->second) + type_control);
    at = key_end + size;
  }
  return changed + model.substr(at);
}

class RenamedWren {
 public:
  explicit RenamedWren(const std::map<TokenId, std::string>& spellings) {
    const std::filesystem::path wren = MINISGL_SOURCE_DIR "/tests/models/wren";
    std::string name = (std::filesystem::temp_directory_path() / "wren_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
    for (const auto& entry : std::filesystem::directory_iterator(wren)) {
      const std::string file = entry.path().filename().string();
      if (file != kModel) std::filesystem::create_symlink(entry.path(), path_ / file);
    }
    std::ifstream in(wren / kModel, std::ios::binary);
    const std::string model{std::istreambuf_iterator<char>(in), {}};
    std::ofstream(path_ / kModel, std::ios::binary) << WithControlTokens(model, spellings);
  }
  ~RenamedWren() { std::filesystem::remove_all(path_); }
  RenamedWren(const RenamedWren&) = delete;
  RenamedWren& operator=(const RenamedWren&) = delete;

  std::string path() const { return path_.string(); }

 private:
  static constexpr const char* kModel = "tokenizer.model";
  std::filesystem::path path_;
};

}  // namespace minisgl
