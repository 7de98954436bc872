// What the tests of pictures share: the folder of test data beside the project, files, hashes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/sha256.h"

namespace minisgl {

// A folder of the shared test data beside the project, which may not be there.
inline std::string SharedFolder(const std::string& name) {
  const char* const given = std::getenv("MINISGL_SHARED");
  const std::string folder = given != nullptr ? given : MINISGL_SOURCE_DIR "/../shared";
  return folder + "/" + name;
}

inline std::string ReadAllBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

inline Json ReadJsonFile(const std::string& path) {
  auto json = ParseJson(ReadAllBytes(path));
  EXPECT_TRUE(json.ok()) << path << ": " << json.status().message();
  return json.ok() ? *std::move(json) : Json();
}

// A file of one JSON value a line.
inline std::vector<Json> ReadJsonLines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) {
    auto row = ParseJson(line);
    EXPECT_TRUE(row.ok()) << path << ": " << row.status().message();
    if (row.ok()) rows.push_back(*std::move(row));
  }
  return rows;
}

inline std::string HashOf(std::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.FinishHex();
}

inline std::string HashOfFloats(const std::vector<float>& values) {
  return HashOf({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

}  // namespace minisgl
