// Tiny models of tests/golden with random weights, which get the demo model's vocabulary and
// tokenizer, so that the program runs them, and rows for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answers/run_program.h"
#include "minisgl/weights/checkpoint.h"
#include "model/tiny_model.h"

namespace minisgl::answers {

inline constexpr int64_t kDemoVocab = 2048;  // of the demo model

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Gives `tensor` kDemoVocab rows: those past its own are its own ones, turned by some elements.
inline void Lengthen(FileTensor* tensor) {
  const auto rows = static_cast<size_t>(tensor->shape[0]);
  const size_t row_bytes = tensor->bytes.size() / rows;
  const size_t element = row_bytes / static_cast<size_t>(tensor->shape[1]);
  for (size_t row = rows; row < static_cast<size_t>(kDemoVocab); ++row) {
    std::string copy = tensor->bytes.substr(row % rows * row_bytes, row_bytes);
    const size_t turn = row / rows * element % row_bytes;
    std::rotate(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(turn), copy.end());
    tensor->bytes += copy;
  }
  tensor->shape[0] = kDemoVocab;
}

class TinyModelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string source =
        std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
    const std::string file = ReadWholeFile(source + "/model.safetensors");
    uint64_t begin = 0;
    const auto header =
        SafetensorsFile::ParseHeader(std::as_bytes(std::span(file)), "model.safetensors", &begin);
    ASSERT_TRUE(header.ok()) << header.status().message();
    const int64_t vocab = WriteConfig(source);
    std::vector<FileTensor> tensors;
    for (const auto& [name, entry] : *header) {
      FileTensor tensor{name, entry.dtype_name, entry.shape,
                        file.substr(begin + entry.begin, entry.end - entry.begin)};
      const bool is_table = name.find("embed") != std::string::npos || name == "lm_head.weight";
      if (is_table && tensor.shape.size() == 2 && tensor.shape[0] == vocab) Lengthen(&tensor);
      tensors.push_back(std::move(tensor));
    }
    WriteCheckpoint(dir_, tensors);
    for (const char* name : {"tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::copy(DemoModel() + "/" + name, dir_.path() + "/" + name);
    }
  }

  // Writes config.json with the demo model's vocabulary. Returns the model's configuration.
  int64_t WriteConfig(const std::string& source) {
    Json config = ParseJson(ReadWholeFile(source + "/config.json")).value();
    const int64_t vocab = config.Find("vocab_size")->as_int();
    config.Set("vocab_size", kDemoVocab).Set("max_position_embeddings", kDemoVocab);
    const char* const second = "vocab_size_per_layer_input";
    if (config.Find(second) != nullptr) config.Set(second, kDemoVocab);
    config.Set("eos_token_id", 2).Set("bos_token_id", 1);
    std::ofstream(dir_.path() + "/config.json") << config.Dump();
    return vocab;
  }

  // Rows that share prefixes of several lengths, with long and short answers, some sampled.
  std::string WriteRows() const {
    std::string path = dir_.path() + "/rows.jsonl";
    std::ofstream out(path);
    std::string stem;
    for (int i = 0; i < 90; ++i) stem += "Row " + std::to_string(i * 7 % 23) + " is here. ";
    for (int i = 0; i < 24; ++i) {
      Json row;
      const auto shared = static_cast<size_t>(i % 4 * 150 + (i % 3 == 0 ? 40 : 0));
      row.Set("id", i).Set("max_tokens", i % 5 == 0 ? 60 : 8 + i).Set("ignore_eos", true);
      row.Set("prompt", stem.substr(0, shared) + "And " + std::to_string(i % 20) + "?");
      if (i % 4 == 1) row.Set("temperature", 1.0).Set("seed", i).Set("logprobs", 2);
      if (i % 6 == 2) row.Set("session", "s").Set("append", true);
      out << row.Dump() << "\n";
    }
    return path;
  }

  TinyModelDir dir_;
};

}  // namespace minisgl::answers
