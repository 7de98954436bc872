// Compares real tokenizers with the libraries that define them: ids, decoded text and streams of
// many texts. make_real_tokenizer_cases.py wrote the cases. Those in tests/text/tokenizers are
// pipelines of real tokenizers with small vocabularies trained on the texts; complete tokenizers in
// the folder $MINISGL_TOKENIZERS, if it is set, are compared too.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/stream_decoder.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

const std::string kSmall = MINISGL_SOURCE_DIR "/tests/text/tokenizers";

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<std::string> ReadLines(const std::string& folder) {
  std::vector<std::string> lines;
  for (const Json& row : ReadRows(folder + "/lines.jsonl")) {
    const Json* text = row.Find("text");
    lines.push_back(text != nullptr ? text->as_string() : FromHex(row.Find("hex")->as_string()));
  }
  return lines;
}

std::vector<TokenId> IdsIn(const Json& row, const char* key) {
  std::vector<TokenId> ids;
  for (const Json& id : row.Find(key)->as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

// Counts the differences between a tokenizer and its cases, and shows the first of them.
class Comparison {
 public:
  explicit Comparison(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Row(const std::string& line, const Json& row) {
    const std::vector<TokenId> ids = IdsIn(row, "ids");
    Same("ids", line, EncodedText(tokenizer_, line), ids);
    const Json* text = row.Find("text");
    DecodesTo(line, ids, /*spells=*/true, text == nullptr ? line : text->as_string());
    // In trusted text, only special tokens are recognised in addition.
    const bool differs = row.Find("trusted") != nullptr;
    const std::vector<TokenId> trusted = differs ? IdsIn(row, "trusted") : ids;
    Same("trusted ids", line, Encoded(tokenizer_, {{line, true}}), trusted);
    if (!differs) return;
    DecodesTo(line, trusted, /*spells=*/true, row.Find("spelled")->as_string());
    DecodesTo(line, trusted, /*spells=*/false, row.Find("plain")->as_string());
  }

  int num_differences() const { return num_differences_; }

 private:
  void DecodesTo(const std::string& line, const std::vector<TokenId>& ids, bool spells,
                 const std::string& text) {
    Same("text", line, tokenizer_.Decode(ids, spells), text);
    Same("streamed text", line, Streamed(tokenizer_, ids, spells), text);
  }

  template <typename T>
  void Same(const char* what, const std::string& line, const T& ours, const T& theirs) {
    if (ours == theirs) return;
    if (++num_differences_ > 5) return;
    ADD_FAILURE() << what << " of \"" << Visible(line, 400)
                  << "\"\nours:   " << testing::PrintToString(ours)
                  << "\ntheirs: " << testing::PrintToString(theirs);
  }

  const Tokenizer& tokenizer_;
  int num_differences_ = 0;
};

void CompareAll(const std::string& folder, const std::string& name, size_t num_lines) {
  SCOPED_TRACE(name);
  const auto tokenizer = Tokenizer::Load(folder + "/" + name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::vector<std::string> lines = ReadLines(folder);
  const std::vector<Json> rows = ReadRows(folder + "/" + name + "/cases.jsonl");
  ASSERT_EQ(lines.size(), num_lines);
  ASSERT_EQ(rows.size(), lines.size() + 1);
  EXPECT_EQ((*tokenizer)->Prefix(), IdsIn(rows[0], "prefix"));
  Comparison comparison(**tokenizer);
  for (size_t i = 0; i < lines.size(); ++i) comparison.Row(lines[i], rows[i + 1]);
  EXPECT_EQ(comparison.num_differences(), 0);
}

class SmallTokenizersTest : public testing::TestWithParam<std::string> {};

TEST_P(SmallTokenizersTest, IdsAndTextsAreTheReferences) { CompareAll(kSmall, GetParam(), 300); }

INSTANTIATE_TEST_SUITE_P(Families, SmallTokenizersTest,
                         testing::Values("llama3", "qwen2", "o200k", "gpt2", "spm-prepend",
                                         "spm-metaspace", "gemma", "tekken"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(WholeTokenizersTest, IdsAndTextsAreTheReferences) {
  const char* folder = std::getenv("MINISGL_TOKENIZERS");
  if (folder == nullptr) {
    GTEST_SKIP() << "MINISGL_TOKENIZERS names no folder (make_real_tokenizer_cases.py makes one)";
  }
  int num_compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    CompareAll(folder, entry.path().filename().string(), 5000);
    ++num_compared;
  }
  EXPECT_GT(num_compared, 0) << folder;
}

}  // namespace
}  // namespace minisgl
