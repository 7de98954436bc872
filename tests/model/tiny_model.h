// A made-up model small enough to load in every test: random weights from a seed, written as a
// safetensors file into a directory that goes away with the TinyModelDir.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// A tensor as a file holds it; `dtype` is spelled as the format spells it ("F32").
struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  static FileTensor F32(std::string name, std::vector<int64_t> shape,
                        const std::vector<float>& data);
};

class TinyModelDir {
 public:
  TinyModelDir();
  ~TinyModelDir();
  TinyModelDir(const TinyModelDir&) = delete;
  TinyModelDir& operator=(const TinyModelDir&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Two layers, 4 query heads on 2 KV heads of 8, vocabulary 97, separate head.
ModelConfig TinyConfig();

// Every tensor that `config` needs, f32.
std::vector<FileTensor> TinyTensors(const ModelConfig& config, uint64_t seed = 1);

// The tensor `name` of `tensors`; the test fails if it does not exist.
FileTensor& TensorNamed(std::vector<FileTensor>* tensors, const std::string& name);

// Writes model.safetensors into `dir` and opens it; aborts on failure.
std::unique_ptr<Checkpoint> WriteCheckpoint(const TinyModelDir& dir,
                                            const std::vector<FileTensor>& tensors);

}  // namespace minisgl
