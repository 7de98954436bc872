// The tensors of a model directory: model.safetensors, or the shards named by
// model.safetensors.index.json; or the tensors of a GGUF file, under the same names.
//
// Files are mapped, not copied. Headers are untrusted: every rule of the safetensors format is
// checked. Views are valid during the lifetime of the Checkpoint. Immutable after Open; readable
// from any thread.
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
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl {

// One safetensors file.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype_name;  // as spelled in the file: "BF16"
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // byte offsets in the file's data part
    uint64_t end = 0;
  };
  // Parses and checks the header of the file contents `bytes`. Sets `*data_begin` to the offset of
  // the data part. `file` is its name in errors.
  static Result<std::map<std::string, Entry, std::less<>>> ParseHeader(
      std::span<const std::byte> bytes, const std::string& file, uint64_t* data_begin);
};

class Checkpoint {
 public:
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& model_dir);
  // Opens one safetensors file.
  static Result<std::unique_ptr<Checkpoint>> OpenFile(const std::string& path);
  // A checkpoint of tensors in memory that `memory` keeps alive. `source` replaces the file name in
  // errors. REQUIRES fewer than 2^64 bytes in total.
  static std::unique_ptr<Checkpoint> FromViews(std::map<std::string, TensorView> tensors,
                                               std::shared_ptr<const void> memory,
                                               std::string source);
  // The same files with other tensors in place of some, or beside them, in memory that `memory`
  // keeps alive. Its Files() are the same, too.
  std::unique_ptr<Checkpoint> WithTensors(std::map<std::string, TensorView> tensors,
                                          std::shared_ptr<const void> memory) const;
  ~Checkpoint();

  // The tensor `name`. kBadInput with its name and the files searched if it does not exist, or if
  // its dtype is not bf16, f16 or f32.
  Result<TensorView> Get(std::string_view name) const;
  // Get for a tensor of any DType: codes and scales of quantized weights.
  Result<TensorView> GetStored(std::string_view name) const;
  // The matrix `name` of a GGUF file, which states how each matrix is stored. Null for tensors that
  // Get() returns.
  const WeightTensor* FindMatrix(std::string_view name) const;
  // True for a tensor that a file holds or that the index names: a part of the model that is
  // missing is an error of Get, and never taken for one that the model does without.
  bool Has(std::string_view name) const;
  bool Holds(std::string_view name) const;  // in a file
  std::vector<std::string> Absent() const;  // named by the index, in no file; sorted
  std::vector<std::string> Names() const;   // sorted
  uint64_t total_bytes() const;             // of all tensors
  // The files of the tensors, sorted by name; empty for tensors in memory.
  std::vector<const MappedFile*> Files() const;
  // The bytes of layer `layer` in the files, or of what is in no layer (-1), in the order of their
  // places: of tensors in whose names the layer's number is the first one. To read ahead.
  std::vector<std::span<const std::byte>> BytesOfLayer(int32_t layer) const;
  // Releases the pages of the files that have been read (MappedFile::DropPages).
  void DropPages() const;
  // Keeps the memory of all tensors for as long as the result exists.
  std::shared_ptr<const void> Keep() const;
  // The path of the file with the tensor `name`, or "" if there is none: for messages.
  std::string FileOf(std::string_view name) const;

 private:
  Checkpoint();
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace minisgl
