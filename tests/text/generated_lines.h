// 5,000 lines made from the lines of tokenizers/lines.jsonl: parts of them, characters of many
// scripts, white space, contractions and numbers, side by side. make_gguf_tokenizer_cases.py makes
// the same.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "text_test_util.h"

namespace minisgl {

inline constexpr int kGeneratedLines = 5000;

// SplitMix64.
class LineRandom {
 public:
  // A number below `limit`.
  size_t Below(size_t limit) {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_ = 1;
};

// FNV-1a.
class LineHash {
 public:
  void Add(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) {
      hash_ = (hash_ ^ (value >> (8 * i) & 0xFF)) * 0x100000001B3u;
    }
  }
  std::string Hex() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

inline std::vector<std::string> GeneratedLines() {
  const std::string folder = MINISGL_SOURCE_DIR "/tests/text";
  const Json lists = *ParseJson(ReadBytes(folder + "/generated_lines.json"));
  const Json::Array& blocks = lists.Find("blocks")->as_array();
  const Json::Array& pieces = lists.Find("pieces")->as_array();
  std::vector<std::vector<std::string>> texts;  // as characters
  for (const Json& row : ReadRows(folder + "/tokenizers/lines.jsonl")) {
    const Json* const text = row.Find("text");
    if (text == nullptr) continue;
    texts.emplace_back();
    for (const unsigned char byte : text->as_string()) {
      if ((byte & 0xC0) != 0x80) texts.back().emplace_back();
      texts.back().back() += static_cast<char>(byte);
    }
  }
  LineRandom random;
  std::vector<std::string> lines(kGeneratedLines);
  for (std::string& line : lines) {
    for (size_t parts = 1 + random.Below(5); parts > 0; --parts) {
      const size_t kind = random.Below(8);
      if (kind == 0) {
        const Json::Array& block = blocks[random.Below(blocks.size())].as_array();
        const int64_t first = block[0].as_int(), count = block[1].as_int() - first + 1;
        for (size_t left = 1 + random.Below(3); left > 0; --left) {
          const auto offset = static_cast<int64_t>(random.Below(static_cast<size_t>(count)));
          AppendUtf8(static_cast<char32_t>(first + offset), &line);
        }
      } else if (kind <= 2) {
        line += pieces[random.Below(pieces.size())].as_string();
      } else {
        const std::vector<std::string>& text = texts[random.Below(texts.size())];
        if (text.empty()) continue;
        const size_t begin = random.Below(text.size()), length = 1 + random.Below(24);
        for (size_t i = begin; i < std::min(begin + length, text.size()); ++i) line += text[i];
      }
    }
  }
  return lines;
}

}  // namespace minisgl
