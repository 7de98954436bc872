// The tensors of a model directory: model.safetensors, or the shards of
// model.safetensors.index.json.
//
// Files are mapped, never copied; headers are hostile until every rule of the format has been
// checked. Views stay valid as long as the Checkpoint lives. Immutable once open; readable from any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/status.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl {

// One safetensors file.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype_name;  // as the file spells it: "BF16"
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // byte offsets in the file's data part
    uint64_t end = 0;
  };
  // Checks the whole header of `bytes`; `file` is named in errors.
  static Result<std::map<std::string, Entry, std::less<>>> ParseHeader(
      std::span<const std::byte> bytes, const std::string& file, uint64_t* data_begin);
};

class Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& model_dir);
  // Tensors that lie in memory, which `memory` keeps alive. `source` stands for the file in errors.
  // REQUIRES no name twice, and fewer than 2^64 bytes in all.
  static std::unique_ptr<Checkpoint> FromViews(std::map<std::string, TensorView> tensors,
                                               std::shared_ptr<const void> memory,
                                               std::string source);
  ~Checkpoint();

  // The tensor `name`; kBadInput naming it (and the files looked in) where there is none, or where
  // its dtype is not bf16, f16 or f32.
  Result<TensorView> Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  std::vector<std::string> Names() const;  // sorted
  uint64_t total_bytes() const;            // of all tensors
  // Those that hold the tensors, in the order of their names; none for tensors in memory.
  std::vector<const MappedFile*> Files() const;
  // The file that holds `name` ("" where none does): for messages.
  std::string FileOf(std::string_view name) const;

 private:
  Checkpoint();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
