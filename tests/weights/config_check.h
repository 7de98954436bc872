// Verbs of the tests of whole configurations: one that must be taken, one that must be refused, and
// how many parameters a model has.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "minisgl/base/json.h"
#include "minisgl/weights/model_config.h"
#include "test_files.h"
#include "weights/architectures.h"

namespace minisgl {

// The object `text` with the members of the object `more` in place of its own.
inline std::string Joined(const std::string& text, const std::string& more) {
  auto json = ParseJson(text);
  const auto added = ParseJson(more);
  EXPECT_TRUE(json.ok() && added.ok()) << json.status().message() << added.status().message();
  if (!json.ok() || !added.ok()) return "";
  for (const auto& [key, value] : added->as_object()) json->Set(key, value);
  return json->Dump();
}

// The parsed configuration; the test fails if it is rejected.
inline ModelConfig Config(const std::string& text, const std::string& more = "{}") {
  const auto config = ParseModelConfig(Joined(text, more), "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (!config.ok()) return ModelConfig();
  EXPECT_EQ(config->layers.size(), static_cast<size_t>(config->num_layers));
  return *config;
}

// The key that the configuration is rejected for; "" if it is accepted.
inline std::string RefusedKey(const std::string& text, const std::string& more) {
  const auto config = ParseModelConfig(Joined(text, more), "config.json");
  if (config.ok()) return "";
  ExpectError(config.status(), StatusCode::kBadInput, "config.json: key \"");
  const std::string& message = config.status().message();
  const size_t begin = message.find('"') + 1;
  return message.substr(begin, message.find('"', begin) - begin);
}

inline int64_t CountParameters(const ModelConfig& config) {
  const auto required = weights::RequiredTensors(config);
  EXPECT_TRUE(required.ok()) << required.status().message();
  int64_t count = 0;
  if (!required.ok()) return count;
  for (const weights::RequiredTensor& tensor : *required) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    count += elements;
  }
  return count;
}

}  // namespace minisgl
