// Writes small GGUF files: a sound one, with the changes of a test.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/gguf/gguf_file.h"

namespace minisgl {

class GgufBuilder {
 public:
  struct Tensor {
    std::vector<uint64_t> shape;  // rows first
    uint32_t type = 0;            // F32
    std::string data = {};        // as in the file; "": all are 0
  };

  // A llama of one layer of width 32 with two heads, all of whose weights are 0.
  static GgufBuilder Llama() {
    GgufBuilder file;
    file.Text("general.architecture", "llama");
    const std::pair<const char*, uint32_t> numbers[] = {
        {"block_count", 1},          {"context_length", 64},      {"embedding_length", 32},
        {"feed_forward_length", 64}, {"attention.head_count", 2}, {"attention.head_count_kv", 1},
    };
    for (const auto& [key, value] : numbers) file.Int(std::string("llama.") + key, value);
    file.Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    file.tensors = {
        {"token_embd.weight", {{20, 32}}},     {"output_norm.weight", {{32}}},
        {"blk.0.attn_norm.weight", {{32}}},    {"blk.0.ffn_norm.weight", {{32}}},
        {"blk.0.attn_q.weight", {{32, 32}}},   {"blk.0.attn_k.weight", {{16, 32}}},
        {"blk.0.attn_v.weight", {{16, 32}}},   {"blk.0.attn_output.weight", {{32, 32}}},
        {"blk.0.ffn_gate.weight", {{64, 32}}}, {"blk.0.ffn_up.weight", {{64, 32}}},
        {"blk.0.ffn_down.weight", {{32, 64}}},
    };
    return file;
  }

  void Int(const std::string& key, uint32_t value) {
    values[key] = Value(GgufType::kUint32, value);
  }
  void Float(const std::string& key, float value) {
    values[key] = Value(GgufType::kFloat32, std::bit_cast<uint32_t>(value));
  }
  void Text(const std::string& key, const std::string& text) {
    values[key] = Bytes<uint32_t>(static_cast<uint32_t>(GgufType::kString)) + Sized(text);
  }
  void Texts(const std::string& key, const std::vector<std::string>& texts) {
    values[key] = Array(GgufType::kString, texts.size());
    for (const std::string& text : texts) values[key] += Sized(text);
  }
  void Ints(const std::string& key, const std::vector<uint32_t>& numbers) {
    values[key] = Array(GgufType::kUint32, numbers.size());
    for (const uint32_t number : numbers) values[key] += Bytes(number);
  }
  void Floats(const std::string& key, const std::vector<float>& numbers) {
    values[key] = Array(GgufType::kFloat32, numbers.size());
    for (const float number : numbers) values[key] += Bytes(std::bit_cast<uint32_t>(number));
  }

  std::string Write() const {
    std::string text = "GGUF" + Bytes<uint32_t>(3) + Bytes<uint64_t>(tensors.size()) +
                       Bytes<uint64_t>(values.size());
    for (const auto& [key, value] : values) text += Sized(key) + value;
    uint64_t data = 0;
    for (const auto& [name, tensor] : tensors) {
      text += Sized(name) + Bytes(static_cast<uint32_t>(tensor.shape.size()));
      uint64_t elements = 1;
      for (size_t i = tensor.shape.size(); i-- > 0;) {
        text += Bytes(tensor.shape[i]);
        elements *= tensor.shape[i];
      }
      text += Bytes(tensor.type) + Bytes(data);
      const GgufElementType& type = *FindGgufElementType(tensor.type);
      data += (elements / type.block_elements * type.block_bytes + 31) / 32 * 32;
    }
    size_t at = (text.size() + 31) / 32 * 32;
    text.resize(at + data);
    for (const auto& [name, tensor] : tensors) {
      uint64_t elements = 1;
      for (const uint64_t count : tensor.shape) elements *= count;
      const GgufElementType& type = *FindGgufElementType(tensor.type);
      text.replace(at, tensor.data.size(), tensor.data);
      at += (elements / type.block_elements * type.block_bytes + 31) / 32 * 32;
    }
    return text;
  }

  std::map<std::string, std::string> values;  // by key: the type and the value
  std::map<std::string, Tensor> tensors;

 private:
  template <typename Int>
  static std::string Bytes(Int value) {
    std::string bytes;
    for (size_t i = 0; i < sizeof(Int); ++i) {
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xFF));
    }
    return bytes;
  }
  static std::string Value(GgufType type, uint32_t bits) {
    return Bytes(static_cast<uint32_t>(type)) + Bytes(bits);
  }
  static std::string Sized(const std::string& text) { return Bytes<uint64_t>(text.size()) + text; }
  static std::string Array(GgufType type, uint64_t count) {
    return Bytes(static_cast<uint32_t>(GgufType::kArray)) + Bytes(static_cast<uint32_t>(type)) +
           Bytes(count);
  }
};

}  // namespace minisgl
