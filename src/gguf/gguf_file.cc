#include "minisgl/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_parts.h"

namespace minisgl {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kAlignmentMax = uint64_t{1} << 20;
constexpr uint64_t kKeyBytesMax = 65535;  // the specification's
constexpr uint64_t kNameBytesMax = 512;   // of a tensor; 64 in the specification
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kKeysMax = 100'000;  // models have some dozens
constexpr uint64_t kTensorsMax = 1'000'000;
// The shortest entries that can be: an empty key with a byte, a tensor without a name of one
// dimension.
constexpr uint64_t kMetadataBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;

constexpr GgufElementType kElementTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},
    {25, "I16", 1, 2},        {26, "I32", 1, 4},        {27, "I64", 1, 8},
    {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
};

// Types that no file of weights has: ggml rounds the inputs of products to the first two, and has
// withdrawn the others.
struct RefusedType {
  uint32_t id;
  const char* name;
  const char* reason;
};
constexpr char kOfInputs[] = "which ggml has for the inputs of products and not for weights";
constexpr char kWithdrawn[] = "which ggml has withdrawn";
constexpr RefusedType kRefusedTypes[] = {
    {9, "Q8_1", kOfInputs},        {15, "Q8_K", kOfInputs},        {4, "Q4_2", kWithdrawn},
    {5, "Q4_3", kWithdrawn},       {31, "Q4_0_4_4", kWithdrawn},   {32, "Q4_0_4_8", kWithdrawn},
    {33, "Q4_0_8_8", kWithdrawn},  {36, "IQ4_NL_4_4", kWithdrawn}, {37, "IQ4_NL_4_8", kWithdrawn},
    {38, "IQ4_NL_8_8", kWithdrawn}};

Status UnknownType(uint64_t at, std::string_view what, uint32_t number) {
  for (const RefusedType& type : kRefusedTypes) {
    if (type.id != number) continue;
    return BadInput("byte {}: {} has elements of type {}, {}; use a file of another type, as {}",
                    at, what, type.name, type.reason,
                    number == 9 || number == 15 ? "Q8_0" : "Q4_0");
  }
  return BadInput("byte {}: {} has elements of type {}, which is not known", at, what, number);
}

// Bytes of a value of a fixed size; 0 for strings and arrays.
uint64_t BytesOfType(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

uint64_t ReadLittleEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(value)));
  return value;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads values from front to back. Whatever is not there is an error.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  Result<std::span<const std::byte>> Take(uint64_t count, std::string_view what) {
    if (count > left()) {
      return BadInput("byte {}: {} has {} bytes, {} are left", at_, what, count, left());
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <typename Int>
  Result<Int> TakeInt(std::string_view what) {
    MINISGL_ASSIGN_OR_RETURN(const auto bytes, Take(sizeof(Int), what));
    return static_cast<Int>(ReadLittleEndian(bytes));
  }
  // A length and so many bytes.
  Result<std::string_view> TakeString(uint64_t bytes_max, std::string_view what) {
    const uint64_t begin = at_;
    MINISGL_ASSIGN_OR_RETURN(const auto length, TakeInt<uint64_t>(what));
    if (length > bytes_max) {
      return BadInput("byte {}: {} has {} bytes; at most {} are allowed", begin, what, length,
                      bytes_max);
    }
    MINISGL_ASSIGN_OR_RETURN(const auto bytes, Take(length, what));
    return TextOf(bytes);
  }
  // Skips strings, as many of `count` as are whole. (A vocabulary has hundreds of thousands.)
  // Returns how many.
  uint64_t SkipWholeStrings(uint64_t count) {
    const std::byte* next = bytes_.data() + at_;
    uint64_t skipped = 0, num_left = left();
    for (uint64_t length; skipped < count && num_left >= sizeof(length); ++skipped) {
      std::memcpy(&length, next, sizeof(length));
      num_left -= sizeof(length);
      if (length > num_left) break;
      num_left -= length;
      next += sizeof(length) + length;
      at_ += sizeof(length) + length;
    }
    return skipped;
  }
  // Skips to the next multiple of `alignment`. A file may end before it.
  void Align(uint64_t alignment) {
    at_ += std::min((alignment - at_ % alignment) % alignment, left());
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

Result<GgufType> CheckedType(uint32_t type, uint64_t at, std::string_view key) {
  if (type <= static_cast<uint32_t>(GgufType::kFloat64)) return static_cast<GgufType>(type);
  return BadInput("byte {}: key \"{}\" has a value of type {}; 0 to 12 are known", at,
                  Visible(key, 100), type);
}

// Skips `count` values of one type.
Status SkipValues(GgufType type, uint64_t count, std::string_view what, Reader* reader) {
  if (type != GgufType::kString) {
    const auto bytes = CheckedMul(count, BytesOfType(type));
    const uint64_t at = reader->at();
    if (!bytes || *bytes > reader->left()) {
      return BadInput("byte {}: {} has {} elements, {} bytes are left", at, what, count,
                      reader->left());
    }
    return reader->Take(*bytes, what).status();
  }
  // Each has at least its length.
  if (count > reader->left() / sizeof(uint64_t)) {
    return BadInput("byte {}: {} has {} strings, {} bytes are left", reader->at(), what, count,
                    reader->left());
  }
  if (reader->SkipWholeStrings(count) == count) return Status();
  return reader->TakeString(UINT64_MAX, what).status();  // the one that is not whole
}

Status CheckBools(std::span<const std::byte> bytes, std::string_view what) {
  for (const std::byte byte : bytes) {
    if (std::to_integer<int>(byte) > 1) {
      return BadInput("{} has a truth value of {}; 0 or 1 is needed", what,
                      std::to_integer<int>(byte));
    }
  }
  return Status();
}

Result<GgufValue> ReadValue(std::string_view key, std::span<const std::byte> all, Reader* reader) {
  const std::string what = "key \"" + Visible(key, 100) + "\"";
  const uint64_t type_at = reader->at();
  MINISGL_ASSIGN_OR_RETURN(const auto number, reader->TakeInt<uint32_t>(what));
  MINISGL_ASSIGN_OR_RETURN(const GgufType type, CheckedType(number, type_at, key));
  GgufType element = type;
  uint64_t count = 1;
  if (type == GgufType::kArray) {
    const uint64_t at = reader->at();
    MINISGL_ASSIGN_OR_RETURN(const auto element_number, reader->TakeInt<uint32_t>(what));
    MINISGL_ASSIGN_OR_RETURN(element, CheckedType(element_number, at, key));
    if (element == GgufType::kArray) {
      return BadInput("byte {}: {} is an array of arrays, which no model needs", at, what);
    }
    MINISGL_ASSIGN_OR_RETURN(count, reader->TakeInt<uint64_t>(what));
  }
  const uint64_t begin = reader->at();
  MINISGL_RETURN_IF_ERROR(SkipValues(element, count, what, reader));
  const auto bytes = all.subspan(begin, reader->at() - begin);
  if (element == GgufType::kBool) MINISGL_RETURN_IF_ERROR(CheckBools(bytes, what));
  return GgufValue(type, element, count, bytes);
}

Status ReadMetadata(uint64_t count, std::span<const std::byte> all, Reader* reader,
                    GgufHeader* header) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = reader->at();
    MINISGL_ASSIGN_OR_RETURN(const std::string_view key,
                             reader->TakeString(kKeyBytesMax, "a key of the metadata"));
    MINISGL_ASSIGN_OR_RETURN(GgufValue value, ReadValue(key, all, reader));
    if (!header->metadata.emplace(key, std::move(value)).second) {
      return BadInput("byte {}: key \"{}\" occurs twice", at, Visible(key, 100));
    }
  }
  return Status();
}

Status ReadAlignment(GgufHeader* header) {
  header->alignment = kDefaultAlignment;
  const GgufValue* value = header->Find("general.alignment");
  if (value == nullptr) return Status();
  const std::optional<int64_t> found = value->AsInt();
  if (!found || *found < 1 || static_cast<uint64_t>(*found) > kAlignmentMax ||
      !std::has_single_bit(static_cast<uint64_t>(*found))) {
    return BadInput("key \"general.alignment\": a power of two up to {} is needed (found {})",
                    kAlignmentMax, found ? fmt::format("{}", *found) : "another type");
  }
  header->alignment = static_cast<uint64_t>(*found);
  return Status();
}

// Sets the shape of `tensor`. Returns its bytes.
Result<uint64_t> ReadShape(const std::string& what, Reader* reader, GgufTensor* tensor) {
  const uint64_t at = reader->at();
  MINISGL_ASSIGN_OR_RETURN(const auto rank, reader->TakeInt<uint32_t>(what));
  if (rank < 1 || rank > kDimensionsMax) {
    return BadInput("byte {}: {} has {} dimensions; 1 to {} are allowed", at, what, rank,
                    kDimensionsMax);
  }
  std::optional<uint64_t> elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    MINISGL_ASSIGN_OR_RETURN(const auto size, reader->TakeInt<uint64_t>(what));
    elements = elements ? CheckedMul(*elements, size) : elements;
    if (size < 1 || size > INT64_MAX || !elements || *elements > INT64_MAX) {
      return BadInput("byte {}: {} has a dimension of {}, or too many elements", at, what, size);
    }
    tensor->shape.insert(tensor->shape.begin(), static_cast<int64_t>(size));
  }
  const uint64_t type_at = reader->at();
  MINISGL_ASSIGN_OR_RETURN(const auto number, reader->TakeInt<uint32_t>(what));
  tensor->type = FindGgufElementType(number);
  if (tensor->type == nullptr) return UnknownType(type_at, what, number);
  const GgufElementType& type = *tensor->type;
  if (static_cast<uint64_t>(tensor->shape.back()) % type.block_elements != 0) {
    return BadInput("{} has rows of {} elements; {} needs a multiple of {}", what,
                    tensor->shape.back(), type.name, type.block_elements);
  }
  const auto bytes = CheckedMul(*elements / type.block_elements, type.block_bytes);
  if (!bytes) return BadInput("{} has {} elements, more than memory can hold", what, *elements);
  return *bytes;
}

Status ReadTensors(uint64_t count, Reader* reader, GgufHeader* header) {
  std::set<std::string_view> names;
  header->tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = reader->at();
    MINISGL_ASSIGN_OR_RETURN(const std::string_view name,
                             reader->TakeString(kNameBytesMax, "the name of a tensor"));
    const std::string what = "tensor \"" + Visible(name, 100) + "\"";
    if (!names.insert(name).second) return BadInput("byte {}: {} occurs twice", at, what);
    GgufTensor tensor;
    tensor.name = name;
    MINISGL_ASSIGN_OR_RETURN(const uint64_t bytes, ReadShape(what, reader, &tensor));
    MINISGL_ASSIGN_OR_RETURN(tensor.begin, reader->TakeInt<uint64_t>(what));
    if (tensor.begin % header->alignment != 0) {
      return BadInput("{} begins at {} of the data, which is no multiple of {}", what, tensor.begin,
                      header->alignment);
    }
    const auto end = CheckedAdd(tensor.begin, bytes);
    if (!end) return BadInput("{} ends past 2^64 bytes", what);
    tensor.end = *end;
    header->tensors.push_back(std::move(tensor));
  }
  return Status();
}

// Turns offsets of the data into offsets of the file. Tensors lie within it, and not over others.
Status PlaceTensors(std::span<const std::byte> bytes, GgufHeader* header) {
  const uint64_t data_bytes = bytes.size() - header->data_begin;
  std::vector<const GgufTensor*> order;
  for (GgufTensor& tensor : header->tensors) {
    if (tensor.end > data_bytes) {
      return BadInput(
          "tensor \"{}\" takes bytes {} to {} of the data, which has {}: the file is cut off, or "
          "damaged",
          Visible(tensor.name, 100), tensor.begin, tensor.end, data_bytes);
    }
    tensor.begin += header->data_begin;
    tensor.end += header->data_begin;
    tensor.data = bytes.subspan(tensor.begin, tensor.end - tensor.begin);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->begin >= order[i - 1]->end) continue;
    return BadInput("tensors \"{}\" and \"{}\" overlap", Visible(order[i - 1]->name, 100),
                    Visible(order[i]->name, 100));
  }
  return Status();
}

Status CheckCount(uint64_t count, uint64_t count_max, uint64_t bytes_min, const Reader& reader,
                  const char* what) {
  if (count > count_max) {
    return BadInput("has {} {}; at most {} are allowed", count, what, count_max);
  }
  if (count <= reader.left() / bytes_min) return Status();
  return BadInput("byte {}: {} {}, {} bytes are left", reader.at(), count, what, reader.left());
}

}  // namespace

const GgufElementType* FindGgufElementType(uint32_t id) {
  for (const GgufElementType& type : kElementTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

uint64_t GgufTensor::num_elements() const {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

std::optional<int64_t> GgufValue::AsInt() const {
  const uint64_t raw = ReadLittleEndian(bytes_.first(std::min<size_t>(bytes_.size(), 8)));
  switch (type_) {
    case GgufType::kUint8:
    case GgufType::kUint16:
    case GgufType::kUint32:
      return static_cast<int64_t>(raw);
    case GgufType::kUint64:
      return raw <= INT64_MAX ? std::optional<int64_t>(static_cast<int64_t>(raw)) : std::nullopt;
    case GgufType::kInt8:
      return static_cast<int8_t>(raw);
    case GgufType::kInt16:
      return static_cast<int16_t>(raw);
    case GgufType::kInt32:
      return static_cast<int32_t>(raw);
    case GgufType::kInt64:
      return static_cast<int64_t>(raw);
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::AsDouble() const {
  if (type_ == GgufType::kFloat32) {
    return std::bit_cast<float>(static_cast<uint32_t>(ReadLittleEndian(bytes_)));
  }
  if (type_ == GgufType::kFloat64) return std::bit_cast<double>(ReadLittleEndian(bytes_));
  if (type_ == GgufType::kUint64) return static_cast<double>(ReadLittleEndian(bytes_));
  const std::optional<int64_t> integer = AsInt();
  return integer ? std::optional<double>(static_cast<double>(*integer)) : std::nullopt;
}

std::optional<bool> GgufValue::AsBool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return bytes_[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return TextOf(bytes_.subspan(sizeof(uint64_t)));
}

GgufElements GgufValue::Elements(uint64_t count_max) const {
  if (type_ != GgufType::kArray) return {element_type_, 0, {}};
  return {element_type_, std::min(count_, count_max), bytes_};
}

GgufElements::GgufElements(GgufType type, uint64_t count, std::span<const std::byte> bytes)
    : type_(type),
      element_bytes_(type == GgufType::kString ? 0 : BytesOfType(type)),
      count_(count),
      bytes_(bytes) {}

bool GgufValue::IsSameAs(const GgufValue& other) const {
  return type_ == other.type_ && element_type_ == other.element_type_ && count_ == other.count_ &&
         TextOf(bytes_) == TextOf(other.bytes_);
}

const GgufValue* GgufHeader::Find(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

Result<GgufHeader> GgufHeader::Parse(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  GgufHeader header;
  const auto magic = reader.Take(4, "the beginning");
  if (!magic.ok() || TextOf(*magic) != "GGUF") return BadInput("is no GGUF file");
  MINISGL_ASSIGN_OR_RETURN(header.version, reader.TakeInt<uint32_t>("the version"));
  if (header.version == 0x03000000 || header.version == 0x02000000) {
    return BadInput("is a big-endian GGUF file; little-endian ones are read");
  }
  if (header.version != 2 && header.version != 3) {
    return BadInput("is a GGUF file of version {}; 2 and 3 are read", header.version);
  }
  MINISGL_ASSIGN_OR_RETURN(const auto num_tensors,
                           reader.TakeInt<uint64_t>("the number of tensors"));
  MINISGL_ASSIGN_OR_RETURN(const auto num_keys, reader.TakeInt<uint64_t>("the number of keys"));
  MINISGL_RETURN_IF_ERROR(CheckCount(num_keys, kKeysMax, kMetadataBytesMin, reader, "keys"));
  MINISGL_RETURN_IF_ERROR(CheckCount(num_tensors, kTensorsMax, kTensorBytesMin, reader, "tensors"));
  MINISGL_RETURN_IF_ERROR(ReadMetadata(num_keys, bytes, &reader, &header));
  MINISGL_RETURN_IF_ERROR(ReadAlignment(&header));
  MINISGL_RETURN_IF_ERROR(CheckCount(num_tensors, kTensorsMax, kTensorBytesMin, reader, "tensors"));
  MINISGL_RETURN_IF_ERROR(ReadTensors(num_tensors, &reader, &header));
  reader.Align(header.alignment);
  header.data_begin = reader.at();
  MINISGL_RETURN_IF_ERROR(PlaceTensors(bytes, &header));
  return header;
}

bool HasGgufName(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  return extension == ".gguf";
}

bool IsGgufFile(const std::string& path) {
  std::error_code error;
  return HasGgufName(path) && !std::filesystem::is_directory(path, error);
}

// A command reads one file's configuration, its tokenizer and its template, each on its own.
class GgufFile::LastOpened {
 public:
  // Null unless the file is open and as it was.
  std::shared_ptr<const Contents> Find(const std::string& path) {
    const std::lock_guard lock(mutex_);
    auto contents = path == path_ ? contents_.lock() : nullptr;
    const auto is_same = [](const MappedFile& part) {
      return StampOf(part.path()) == part.stamp();
    };
    if (contents == nullptr || !std::ranges::all_of(contents->parts, is_same)) return nullptr;
    return contents;
  }
  void Set(const std::string& path, const std::shared_ptr<const Contents>& contents) {
    const std::lock_guard lock(mutex_);
    path_ = path;
    contents_ = contents;
  }

 private:
  std::mutex mutex_;
  std::string path_;
  std::weak_ptr<const Contents> contents_;
};

Result<GgufFile> GgufFile::Open(const std::string& path) {
  static LastOpened last;
  if (auto contents = last.Find(path)) return GgufFile(std::move(contents));
  MINISGL_ASSIGN_OR_RETURN(GgufFile file, Read(path));
  last.Set(path, file.contents_);
  return file;
}

Result<GgufFile> GgufFile::Read(const std::string& path) {
  std::vector<MappedFile> files;
  std::vector<GgufPart> parts;
  const auto open = [&](const std::string& name) -> Status {
    MINISGL_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(name));
    auto header = GgufHeader::Parse(file.bytes());
    if (!header.ok()) return header.status().WithPrefix(Visible(name, 400));
    files.push_back(std::move(file));
    parts.push_back({name, *std::move(header)});
    return Status();
  };
  MINISGL_RETURN_IF_ERROR(open(path));
  MINISGL_ASSIGN_OR_RETURN(const std::vector<std::string> names, GgufPartsOf(parts[0]));
  if (names.size() > 1) {
    files.clear();
    parts.clear();
    for (const std::string& name : names) {
      const Status opened = open(name);
      if (opened.code() == StatusCode::kNoInput) {
        return BadInput("{}: is missing: the model has {} parts, and all are needed",
                        Visible(name, 400), names.size());
      }
      MINISGL_RETURN_IF_ERROR(opened);
    }
  }
  MINISGL_ASSIGN_OR_RETURN(GgufHeader header, JoinGgufParts(std::move(parts)));
  return GgufFile(std::make_shared<const Contents>(Contents{std::move(files), std::move(header)}));
}

uint64_t GgufFile::num_bytes() const {
  uint64_t sum = 0;
  for (const MappedFile& part : parts()) sum += part.bytes().size();
  return sum;
}

}  // namespace minisgl
