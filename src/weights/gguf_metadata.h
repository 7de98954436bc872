// Reads the metadata of a GGUF file that describes its model: keys "ARCHITECTURE.NAME".
//
// Remembers the first error, so that a reader asks for all it needs and checks once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/gguf/gguf_file.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

class GgufMetadata {
 public:
  // REQUIRES that `header` outlives this.
  GgufMetadata(const GgufHeader& header, std::string architecture)
      : header_(header), architecture_(std::move(architecture)) {}

  const GgufHeader& header() const { return header_; }

  // The value of "ARCHITECTURE.`name`"; null if there is none.
  const GgufValue* Find(std::string_view name) const;

  // A number, or a list that has the same one for each layer. Without `fallback` it is required.
  int64_t Int(std::string_view name, IntRange range, std::optional<int64_t> fallback = {});
  std::optional<int64_t> OptionalInt(std::string_view name, IntRange range);
  // The number for each of `num_layers` layers.
  std::vector<int64_t> IntOfLayers(std::string_view name, int64_t num_layers, IntRange range);
  // A number as JSON, in its shortest decimal form: 1e-6, not the f32 nearest to it. Null if there
  // is none.
  Json Number(std::string_view name);
  // Sets `key` of `config` to that number, if there is one.
  void Copy(std::string_view name, const char* key, Json* config);
  std::string Text(std::string_view name);  // "" if there is none
  bool Bool(std::string_view name, bool fallback);

  // The tensor of this name; null if there is none.
  const GgufTensor* Tensor(std::string_view name) const;
  // The values of a vector of type F32, as of Number(); null if there is no such tensor.
  Json Vector(std::string_view name);

  // Records an error of a key. The first error stays.
  void Fail(std::string_view name, std::string_view wanted);
  void FailWith(Status status);
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  std::string KeyOf(std::string_view name) const;

  const GgufHeader& header_;
  const std::string architecture_;
  Status status_;
};

}  // namespace minisgl::weights
