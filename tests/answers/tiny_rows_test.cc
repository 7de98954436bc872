// Promise 1 through the whole program for models whose layers are unlike the demo model's: tiny
// models of tests/golden with random weights, which get the demo model's vocabulary and tokenizer.
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
#include "answers/schedule_settings.h"
#include "minisgl/weights/checkpoint.h"
#include "model/tiny_model.h"

namespace minisgl::answers {
namespace {

constexpr int64_t kVocab = 2048;  // of the demo model

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Gives `tensor` kVocab rows: those past its own are its own ones, turned by some elements.
void Lengthen(FileTensor* tensor) {
  const auto rows = static_cast<size_t>(tensor->shape[0]);
  const size_t row_bytes = tensor->bytes.size() / rows;
  const size_t element = row_bytes / static_cast<size_t>(tensor->shape[1]);
  for (size_t row = rows; row < static_cast<size_t>(kVocab); ++row) {
    std::string copy = tensor->bytes.substr(row % rows * row_bytes, row_bytes);
    const size_t turn = row / rows * element % row_bytes;
    std::rotate(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(turn), copy.end());
    tensor->bytes += copy;
  }
  tensor->shape[0] = kVocab;
}

class TinyRowsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string source =
        std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
    const std::string file = ReadFile(source + "/model.safetensors");
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

  // Writes config.json with the demo model's vocabulary. Returns that of the model.
  int64_t WriteConfig(const std::string& source) {
    Json config = ParseJson(ReadFile(source + "/config.json")).value();
    const int64_t vocab = config.Find("vocab_size")->as_int();
    config.Set("vocab_size", kVocab).Set("max_position_embeddings", kVocab);
    const char* const second = "vocab_size_per_layer_input";
    if (config.Find(second) != nullptr) config.Set(second, kVocab);
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

TEST_P(TinyRowsTest, AreTheSameUnderEverySchedule) {
  ExpectIdenticalRows(dir_.path(), WriteRows());
}

// Prompt tokens that a run computes.
int64_t ComputedTokens(const std::string& model, const std::string& file) {
  int64_t computed = 0;
  const ProgramRun run = RunProgram({"run", "-m", model, "--file", file, "--quiet", "-n", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const Json& row : run.Rows()) {
    const Json& usage = *row.Find("usage");
    computed += usage.Find("prompt_tokens")->as_int() - usage.Find("cached_tokens")->as_int();
  }
  return computed;
}

// A prefix is shared only where a snapshot of the states is: little is computed twice for that.
TEST_P(TinyRowsTest, SharePrefixesAsTheDemoModelDoes) {
  for (const std::string& file : {PromptFile("notes.jsonl"), PromptFile("conversations.jsonl")}) {
    const int64_t expected = ComputedTokens(DemoModel(), file);
    EXPECT_LE(ComputedTokens(dir_.path(), file), expected * 6 / 5) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyRowsTest,
                         testing::Values("gemma4_text", "lfm2_moe", "qwen3_next",
                                         "granitemoehybrid", "deepseek_v2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl::answers
