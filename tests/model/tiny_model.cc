// See tiny_model.h.
#include "model/tiny_model.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/json.h"
#include "minisgl/base/random.h"

namespace minisgl {

FileTensor FileTensor::F32(std::string name, std::vector<int64_t> shape,
                           const std::vector<float>& data) {
  std::string bytes(data.size() * sizeof(float), '\0');
  if (!data.empty()) std::memcpy(bytes.data(), data.data(), bytes.size());
  return {std::move(name), "F32", std::move(shape), std::move(bytes)};
}

TinyModelDir::TinyModelDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "minisgl-test-XXXXXX").string();
  MINISGL_CHECK(mkdtemp(pattern.data()) != nullptr, "cannot make {}", pattern);
  path_ = pattern;
}

TinyModelDir::~TinyModelDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ModelConfig TinyConfig() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.vocab_size = 97;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.max_seq_len = 256;
  config.ropes = {{.dim = config.head_dim}};
  config.layers.resize(static_cast<size_t>(config.num_layers));
  return config;
}

std::vector<FileTensor> TinyTensors(const ModelConfig& config, uint64_t seed) {
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double center,
                       double spread) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const double u = UniformDouble(seed, static_cast<uint64_t>(i), tensors.size());
      values.push_back(static_cast<float>(center + spread * (2 * u - 1)));
    }
    tensors.push_back(FileTensor::F32(name, std::move(shape), values));
  };
  const int64_t d = config.hidden_size, v = config.vocab_size;
  const double spread = 2.0 / std::sqrt(static_cast<double>(d));
  add("model.embed_tokens.weight", {v, d}, 0, 1);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const LayerShape shape = LayerShapeOf(config, layer);
    const int64_t i = shape.intermediate_size, heads = shape.num_heads;
    const int64_t kv_heads = shape.num_kv_heads;
    const bool has_kv = config.layers[static_cast<size_t>(layer)].kv_layer < 0;
    add(prefix + "input_layernorm.weight", {d}, 1, 0.2);
    add(prefix + "self_attn.q_proj.weight", {heads * shape.head_dim, d}, 0, spread);
    if (has_kv) {
      add(prefix + "self_attn.k_proj.weight", {kv_heads * shape.head_dim, d}, 0, spread);
      add(prefix + "self_attn.v_proj.weight", {kv_heads * shape.value_dim, d}, 0, spread);
    }
    add(prefix + "self_attn.o_proj.weight", {d, heads * shape.value_dim}, 0, spread);
    add(prefix + "post_attention_layernorm.weight", {d}, 1, 0.2);
    add(prefix + "mlp.gate_proj.weight", {i, d}, 0, spread);
    add(prefix + "mlp.up_proj.weight", {i, d}, 0, spread);
    add(prefix + "mlp.down_proj.weight", {d, i}, 0, spread);
  }
  add("model.norm.weight", {d}, 1, 0.2);
  if (!config.tie_word_embeddings) add("lm_head.weight", {v, d}, 0, spread);
  return tensors;
}

FileTensor& TensorNamed(std::vector<FileTensor>* tensors, const std::string& name) {
  for (FileTensor& tensor : *tensors) {
    if (tensor.name == name) return tensor;
  }
  MINISGL_CHECK(false, "no tensor {}", name);
  std::abort();
}

std::unique_ptr<Checkpoint> WriteCheckpoint(const TinyModelDir& dir,
                                            const std::vector<FileTensor>& tensors) {
  Json header = Json::Object{};
  uint64_t offset = 0;
  for (const FileTensor& tensor : tensors) {
    Json::Array shape;
    for (const int64_t size : tensor.shape) shape.emplace_back(size);
    Json entry;
    entry.Set("dtype", tensor.dtype).Set("shape", std::move(shape));
    entry.Set("data_offsets", Json::Array{offset, offset + tensor.bytes.size()});
    header.Set(tensor.name, std::move(entry));
    offset += tensor.bytes.size();
  }
  std::string text = header.Dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(dir.path() + "/model.safetensors", std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));  // little-endian machines
  file << text;
  for (const FileTensor& tensor : tensors) file << tensor.bytes;
  file.close();
  MINISGL_CHECK(file.good(), "cannot write into {}", dir.path());
  auto checkpoint = Checkpoint::Open(dir.path());
  MINISGL_CHECK(checkpoint.ok(), "{}", checkpoint.status().message());
  return std::move(checkpoint).value();
}

}  // namespace minisgl
