// Verbs of the weights tests: a directory that goes away by itself, safetensors bytes built by hand
// (right and wrong alike), and what every error message must look like.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/base/utf8.h"

namespace minisgl {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "minisgl-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary directory: " << pattern;
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// `length` as the 8 bytes that begin a safetensors file.
inline std::string LengthBytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

// A safetensors file with this header and `data`.
inline std::string FileBytes(std::string_view header, std::string_view data = "") {
  return LengthBytes(header.size()).append(header).append(data);
}

// One tensor of the header.
inline std::string EntryText(const std::string& name, const std::string& dtype,
                             const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

// One line that a person can read: no control characters, not empty, not cut off by its own length.
inline void ExpectReadable(const Status& status) {
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(status.message().empty());
  EXPECT_LT(status.message().size(), 2000u);
  EXPECT_EQ(status.message(), Visible(status.message(), 2000));
}

inline void ExpectError(const Status& status, StatusCode code, std::string_view part) {
  ExpectReadable(status);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos)
      << "message: " << status.message() << "\nis to hold: " << part;
}

}  // namespace minisgl
