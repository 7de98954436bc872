// Files that llama.cpp's converter wrote (golden/convert_gguf.py, golden/gguf/cases.json) have the
// logits of the model directories that they were made from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gguf_logits.h"

namespace minisgl {
namespace {

// The member of a case, or null.
Json Member(const Json& model, const char* key) {
  const Json* const found = model.Find(key);
  return found == nullptr ? Json() : *found;
}

void SetAll(const Json& changes, Json* config) {
  if (!changes.is_null()) config->SetAll(changes);
}

// The configuration of the directory `dir` as the case changes it.
ModelConfig ConvertedConfig(const std::string& dir, const Json& model) {
  Json config = *ParseJson(*ReadFile(dir + "/config.json", 1 << 20));
  Json* text = config.Find("text_config");
  if (text == nullptr) text = &config;
  SetAll(Member(model, "changes"), text);
  SetAll(Member(model, "unsaid"), text);
  const Json layers = Member(model, "layers");
  if (!layers.is_null()) text->Set("num_hidden_layers", std::ssize(layers.as_array()));
  const auto parsed = ParseModelConfig(config.Dump(), dir);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (!parsed.ok()) return ModelConfig();
  ModelConfig changed = *parsed;
  // What is found in the names of the directory's tensors.
  const ModelConfig found = *LoadModelConfig(dir);
  changed.text_prefix = found.text_prefix;
  changed.head_prefix = found.head_prefix;
  changed.tie_word_embeddings = found.tie_word_embeddings;
  changed.experts.separate = found.experts.separate;
  changed.experts.outputs_first = found.experts.outputs_first;
  return changed;
}

// The tensors of `whole` with the layers of the case, in its order, and without what it drops.
std::unique_ptr<Checkpoint> TakeTensors(const Checkpoint& whole, const Json& model) {
  std::map<std::string, TensorView> taken;
  const Json layers = Member(model, "layers"), drop = Member(model, "drop");
  for (const std::string& name : whole.Names()) {
    const TensorView view = *whole.Get(name);
    const Json::Array parts = drop.is_null() ? Json::Array() : drop.as_array();
    if (std::any_of(parts.begin(), parts.end(), [&](const Json& part) {
          return name.find(part.as_string()) != std::string::npos;
        })) {
      continue;
    }
    const size_t begin = name.find("layers.") + 7, end = name.find('.', begin);
    if (layers.is_null() || begin < 7 || end == std::string::npos) {
      taken[name] = view;
      continue;
    }
    const int64_t layer = std::stoll(name.substr(begin, end - begin));
    for (size_t i = 0; i < layers.as_array().size(); ++i) {
      if (layers.as_array()[i].as_int() != layer) continue;
      taken[name.substr(0, begin) + std::to_string(i) + name.substr(end)] = view;
    }
  }
  return Checkpoint::FromViews(taken, nullptr, "taken");
}

class GgufConvertedTest : public testing::TestWithParam<std::string> {};

TEST_P(GgufConvertedTest, HasTheLogitsOfTheModelDirectory) {
  const std::string& name = GetParam();
  const Json cases = ReadGolden("gguf/cases");
  const Json& model = *cases.Find(name);
  const std::string dir = kGolden + "/models/" + name;
  const ModelConfig wanted_config = ConvertedConfig(dir, model);
  ModelConfig config;
  const std::vector<float> logits = LogitsOfFile(kGolden + "/gguf/" + name + ".gguf", &config);
  ASSERT_FALSE(logits.empty());
  const Json architecture = Member(model, "architecture");
  EXPECT_EQ(config.architecture,
            architecture.is_null() ? wanted_config.architecture : architecture.as_string());
  EXPECT_EQ(config.dtype, wanted_config.dtype);
  const auto whole = Checkpoint::Open(dir);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const std::vector<float> wanted = LogitsOf(wanted_config, *TakeTensors(**whole, model));
  ASSERT_EQ(logits.size(), wanted.size());
  if (Member(model, "close").is_null()) {
    EXPECT_EQ(logits, wanted);
    return;
  }
  float largest = 0;
  for (const float logit : wanted) largest = std::max(largest, std::abs(logit));
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-5 * largest);
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  const Json cases = ReadGolden("gguf/cases");
  for (const auto& [name, model] : cases.as_object()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GgufConvertedTest, testing::ValuesIn(CaseNames()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace minisgl
