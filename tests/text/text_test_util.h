// The paths of test data for this suite, and a temporary model directory.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl {

inline const std::string kWrenDir = MINISGL_SOURCE_DIR "/tests/models/wren";

// The folder of shared test data beside the project.
inline std::string SharedDir() {
  const char* given = std::getenv("MINISGL_SHARED");
  return given != nullptr ? given : MINISGL_SOURCE_DIR "/../shared";
}

inline bool HasShared(const std::string& name) {
  return std::filesystem::exists(SharedDir() + "/" + name);
}

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

inline std::string Joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

// Reads a file with one JSON value per line.
inline std::vector<Json> ReadRows(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) {
    auto row = ParseJson(line);
    EXPECT_TRUE(row.ok()) << path << ": " << row.status().message();
    if (row.ok()) rows.push_back(std::move(*row));
  }
  return rows;
}

// Decodes the tokens as a stream; `spells`: including control tokens.
inline std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                            bool spells = false) {
  StreamDecoder decoder(&tokenizer, /*at_start=*/true, spells);
  std::string text;
  for (TokenId id : ids) {
    const std::string piece = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece)) << "a piece ends inside a character: " << Visible(piece);
    text += piece;
  }
  return text + decoder.Finish();
}

// A temporary directory, removed by the destructor.
class ModelDir {
 public:
  ModelDir() {
    std::string name = ::testing::TempDir() + "/minisgl-text-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~ModelDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ModelDir(const ModelDir&) = delete;
  ModelDir& operator=(const ModelDir&) = delete;

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& dir) {
  auto tokenizer = Tokenizer::Load(dir);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

// Creates a tokenizer from `model` (the bytes of the file), with `config` as tokenizer_config.json
// if it is not empty.
inline std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& model,
                                                const std::string& config = "") {
  const ModelDir dir;
  dir.Write("tokenizer.model", model);
  if (!config.empty()) dir.Write("tokenizer_config.json", config);
  return LoadTokenizer(dir.path());
}

inline std::vector<TokenId> Ids(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

inline std::vector<TokenId> Encoded(const Tokenizer& tokenizer,
                                    const std::vector<TextPiece>& pieces) {
  auto ids = tokenizer.Encode(pieces);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<TokenId>{};
}

inline std::vector<TokenId> EncodedText(const Tokenizer& tokenizer, const std::string& text) {
  auto ids = tokenizer.EncodeText(text);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<TokenId>{};
}

inline std::vector<TokenId> Concat(std::initializer_list<std::vector<TokenId>> parts) {
  std::vector<TokenId> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace minisgl
