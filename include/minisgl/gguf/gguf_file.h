// A GGUF file: metadata and tensors in one file, as llama.cpp's tools write it (versions 2 and 3,
// little-endian), or in several that are the parts of a model (gguf_parts.h).
//
// Files are untrusted. Every rule of the format is checked before memory is taken: counts and
// lengths against the size of the file, types, dimensions, alignment, and that tensors lie within
// the file and do not overlap. Nothing is copied: values and tensors are views of the file's bytes.
// Immutable; readable from any thread.
//
// Source of the format: the specification in the ggml repository (docs/gguf.md).
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/status.h"

namespace minisgl {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

class GgufElements;

// A value of the metadata. The elements of an array have one type, which is not an array. A view:
// valid as long as the file's bytes.
class GgufValue {
 public:
  // `bytes`: the encoded value, or the elements of an array. GgufHeader::Parse has checked them.
  GgufValue(GgufType type, GgufType element_type, uint64_t count, std::span<const std::byte> bytes)
      : type_(type), element_type_(element_type), count_(count), bytes_(bytes) {}

  GgufType type() const { return type_; }
  GgufType element_type() const { return element_type_; }  // of an array
  uint64_t count() const { return count_; }                // elements of an array, else 1
  // Bytes of the value in the file; a string counts with its length.
  uint64_t num_bytes() const { return bytes_.size(); }

  // The value if it is an integer that fits; nullopt for other types, as below.
  std::optional<int64_t> AsInt() const;
  // An integer or a float.
  std::optional<double> AsDouble() const;
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;
  // The first `count_max` elements of an array, as values; empty for other types.
  GgufElements Elements(uint64_t count_max = UINT64_MAX) const;
  // True for the same type and the same bytes.
  bool IsSameAs(const GgufValue& other) const;

 private:
  GgufType type_, element_type_;
  uint64_t count_;
  std::span<const std::byte> bytes_;
};

// Elements of an array, read one after another while a loop goes over them: a vocabulary has some
// hundred thousand. A view: valid as long as the file's bytes.
class GgufElements {
 public:
  class Iterator {
   public:
    Iterator(GgufType type, size_t element_bytes, std::span<const std::byte> bytes, uint64_t index)
        : type_(type), element_bytes_(element_bytes), bytes_(bytes), index_(index) {}
    GgufValue operator*() const { return {type_, type_, 1, bytes_.first(SizeOfFirst())}; }
    Iterator& operator++() {
      bytes_ = bytes_.subspan(SizeOfFirst());
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    size_t SizeOfFirst() const {
      if (element_bytes_ > 0) return element_bytes_;
      uint64_t length;
      std::memcpy(&length, bytes_.data(), sizeof(length));
      return sizeof(length) + length;
    }
    GgufType type_;
    size_t element_bytes_;              // 0: strings, each with its length
    std::span<const std::byte> bytes_;  // of this element and those behind it
    uint64_t index_;
  };

  // `bytes`: at least `count` encoded values of `type`, checked by GgufHeader::Parse.
  GgufElements(GgufType type, uint64_t count, std::span<const std::byte> bytes);
  uint64_t size() const { return count_; }
  Iterator begin() const { return {type_, element_bytes_, bytes_, 0}; }
  Iterator end() const { return {type_, element_bytes_, {}, count_}; }

 private:
  GgufType type_;
  size_t element_bytes_;
  uint64_t count_;
  std::span<const std::byte> bytes_;
};

// How a tensor's elements are stored: in blocks of block_elements elements and block_bytes bytes.
struct GgufElementType {
  uint32_t id;
  const char* name;  // "Q4_K"
  uint32_t block_elements, block_bytes;
};
// Returns the element type with the number `id` in files; null if there is none.
const GgufElementType* FindGgufElementType(uint32_t id);

struct GgufTensor {
  std::string name;
  // Row-major: shape.back() elements are adjacent, a multiple of the type's block. (The file lists
  // the axes in reverse order.)
  std::vector<int64_t> shape;
  const GgufElementType* type = nullptr;
  uint64_t begin = 0, end = 0;  // byte offsets in its file
  size_t part = 0;              // index of its file among the model's
  std::span<const std::byte> data;
  uint64_t num_elements() const;
};

// The part of a file before its tensors' data.
struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file
  uint64_t data_begin = 0;          // byte offset in the file, the first of several
  size_t num_parts = 1;             // files of the model

  // `bytes`: the whole file, which must outlive the header. kBadInput says what was found at which
  // byte, without the file's name.
  static Result<GgufHeader> Parse(std::span<const std::byte> bytes);

  // Returns the value of `key`; null if there is none.
  const GgufValue* Find(std::string_view key) const;
};

// True if `path` ends in .gguf, in upper or lower case.
bool HasGgufName(const std::string& path);

// True if `path` has such a name and is not a directory. The file need not exist.
bool IsGgufFile(const std::string& path);

// The file, or all files, of a model. Copies share them. Immutable, readable from any thread.
class GgufFile {
 public:
  // `path`: the file, or any part of a split model, whose other parts are beside it. kBadInput for
  // a damaged file or a missing part; errors of opening as in MappedFile::Open. The file that was
  // opened last, if a copy of it is left and it has not changed, is not read again.
  static Result<GgufFile> Open(const std::string& path);
  // The header of all parts together. It refers to the mapped memory, which stays in place as long
  // as a copy is left, or a part that SharedPart returned.
  const GgufHeader& header() const { return contents_->header; }
  const std::vector<MappedFile>& parts() const { return contents_->parts; }
  uint64_t num_bytes() const;  // of all parts
  std::shared_ptr<const MappedFile> SharedPart(size_t index) const {
    return {contents_, &contents_->parts[index]};
  }

 private:
  struct Contents {
    std::vector<MappedFile> parts;
    GgufHeader header;
  };
  class LastOpened;

  explicit GgufFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  static Result<GgufFile> Read(const std::string& path);
  std::shared_ptr<const Contents> contents_;
};

}  // namespace minisgl
