// Every key of the configuration of every architecture, with values that may be wrong for it:
// refused by a message that names the file and the key, or read as a configuration that a decoder
// can be made of. Never a division by zero, never an endless list.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config_check.h"
#include "long_form.h"
#include "slow.h"
#include "weights/field_reader.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

const char* const kValues[] = {"null",       "0",
                               "-1",         "1.5",
                               "2147483648", "-9223372036854775808",
                               "1e300",      "true",
                               "\"64\"",     "[0, -1, \"x\"]",
                               "{\"a\": {}}"};

std::string Text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// Numbers that a decoder divides by or makes lists of.
void ExpectUsable(const ModelConfig& config) {
  EXPECT_GT(config.vocab_size, 0);
  EXPECT_GT(config.hidden_size, 0);
  EXPECT_GT(config.intermediate_size, 0);
  EXPECT_GT(config.max_seq_len, 1);
  ASSERT_GT(config.num_kv_heads, 0);
  EXPECT_EQ(config.num_heads % config.num_kv_heads, 0);
  EXPECT_GT(config.head_dim, 0);
  EXPECT_EQ(config.layers.size(), static_cast<size_t>(config.num_layers));
  EXPECT_GT(config.norm_eps, 0);
  for (const TokenId id : config.eos_token_ids) EXPECT_TRUE(id >= 0 && id < config.vocab_size);
}

// The keys of the configuration, and (true) of the text model inside it.
std::vector<std::pair<bool, std::string>> KeysOf(const Json& config) {
  std::vector<std::pair<bool, std::string>> keys;
  for (const auto& [key, value] : config.as_object()) keys.emplace_back(false, key);
  const Json* text = config.Find("text_config");
  if (text == nullptr) return keys;
  for (const auto& [key, value] : text->as_object()) keys.emplace_back(true, key);
  return keys;
}

// The configurations of all models, in the order of their names.
std::map<std::string, Json> GoodConfigs() {
  std::map<std::string, Json> configs;
  for (const auto& model : fs::directory_iterator(MINISGL_SOURCE_DIR "/tests/golden/models")) {
    const std::string text = Text(model.path() / "config.json");
    auto config = weights::ParseJsonObject(text, "config.json", 32);  // knows bare Infinity
    EXPECT_TRUE(config.ok()) << model.path();
    if (config.ok()) configs.emplace(model.path().filename().string(), std::move(config).value());
  }
  return configs;
}

// The values that a key takes in one model. In the short form each value is taken in two of the
// models that have the key, or each model has one if they are more; of one or two models all.
class ValuesInTurn {
 public:
  explicit ValuesInTurn(const std::map<std::string, Json>& configs) {
    for (const auto& [name, config] : configs) {
      for (const auto& [inside, key] : KeysOf(config)) ++num_models_[key];
    }
  }
  std::vector<const char*> Next(const std::string& key) {
    const size_t all = std::size(kValues);
    if (IsLongForm()) return {std::begin(kValues), std::end(kValues)};
    const size_t num_models = num_models_[key];
    std::vector<const char*> values;
    for (size_t left = std::min(all, (2 * all + num_models - 1) / num_models); left > 0; --left) {
      values.push_back(kValues[next_[key]++ % all]);
    }
    return values;
  }

 private:
  std::map<std::string, size_t> num_models_, next_;
};

TEST(EveryKeyTest, IsRefusedByNameOrLeavesAConfigurationThatCanBeUsed) {
  MarkSlow("every key of every architecture");
  int num_cases = 0, num_refused = 0;
  const std::map<std::string, Json> configs = GoodConfigs();
  ValuesInTurn values(configs);
  for (const auto& [name, good] : configs) {
    for (const auto& [inside, key] : KeysOf(good)) {
      for (const char* value : values.Next(key)) {
        SCOPED_TRACE(fmt::format("{}: {} = {}", name, key, value));
        Json changed = good;
        (inside ? *changed.Find("text_config") : changed).Set(key, *ParseJson(value));
        const auto parsed = ParseModelConfig(changed.Dump(), "dir/config.json");
        ++num_cases;
        if (parsed.ok()) {
          ExpectUsable(*parsed);
          continue;
        }
        ++num_refused;
        // The error may name another key, which no longer fits the changed one.
        ExpectError(parsed.status(), StatusCode::kBadInput, "dir/config.json: key \"");
      }
    }
  }
  EXPECT_GT(num_cases, 300);
  EXPECT_GT(num_refused, num_cases / 4);
  RecordProperty("cases", num_cases);
  RecordProperty("refused", num_refused);
}

}  // namespace
}  // namespace minisgl
