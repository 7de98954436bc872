// The header of a safetensors file: 8 bytes of length (little endian), that many bytes of JSON,
// then the data part.
//
// Every rule is checked before an offset is believed: the header lies in the file, each tensor has
// as many bytes as its shape and dtype say, and the tensors in order of their offsets tile the data
// part with no hole, overlap or rest.
#include <algorithm>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {
namespace {

using Entry = SafetensorsFile::Entry;
using EntryMap = std::map<std::string, Entry, std::less<>>;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr int kHeaderDepthMax = 8;
constexpr size_t kNameBytesMax = 512;
constexpr size_t kRankMax = 8;
constexpr size_t kTensorsMax = 1'000'000;
// An entry of the largest rank holds 14 values.
constexpr uint64_t kHeaderValuesMax = 16 * kTensorsMax;
constexpr size_t kFoundBytesMax = 60;

struct DTypeSize {
  std::string_view name;
  uint64_t bytes;
};
constexpr DTypeSize kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

std::string Found(const Json* value) {
  return value == nullptr ? "nothing" : Visible(value->Dump(), kFoundBytesMax);
}

// The non-negative integers of `value`, an array of at most `count_max`; none where it is anything
// else.
std::optional<std::vector<int64_t>> ReadSizes(const Json* value, size_t count_max) {
  if (value == nullptr || !value->is_array() || value->as_array().size() > count_max) return {};
  std::vector<int64_t> sizes;
  for (const Json& element : value->as_array()) {
    if (!element.is_int() || element.as_int() < 0) return {};
    sizes.push_back(element.as_int());
  }
  return sizes;
}

// The JSON text of the header.
Result<std::string_view> HeaderText(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return BadInput("is no safetensors file (found {} bytes); at least {} are needed", bytes.size(),
                    kLengthBytes);
  }
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  if (length > kHeaderBytesMax) {
    return BadInput("is no safetensors file (found a header length of {}); at most {} is allowed",
                    length, kHeaderBytesMax);
  }
  const std::optional<uint64_t> data_begin = CheckedAdd(kLengthBytes, length);
  if (!data_begin || *data_begin > bytes.size()) {
    return BadInput(
        "is cut short (found {} bytes, of which the header alone needs {}); download it again",
        bytes.size(), kLengthBytes + length);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) {
    return BadInput("has a header that does not begin with {{ (found \"{}\")",
                    Visible(text.substr(0, 8)));
  }
  if (!IsValidUtf8(text)) return BadInput("has a header that is not valid UTF-8");
  return text;
}

Status CheckMetadata(const Json& metadata) {
  if (!metadata.is_object()) {
    return BadInput("__metadata__ must be an object (found {})", metadata.TypeName());
  }
  for (const auto& [key, value] : metadata.as_object()) {
    if (!value.is_string()) {
      return BadInput("__metadata__ holds strings only (found {} at \"{}\")", value.TypeName(),
                      Visible(key));
    }
  }
  return Status();
}

// What the header says of one tensor, consistent in itself.
Result<Entry> ReadEntry(const Json& json) {
  if (!json.is_object()) {
    return BadInput("an object is needed (found {})", json.TypeName());
  }
  Entry entry;
  const Json* dtype = json.Find("dtype");
  const DTypeSize* known = nullptr;
  for (const DTypeSize& candidate : kDTypes) {
    if (dtype != nullptr && dtype->is_string() && dtype->as_string() == candidate.name) {
      known = &candidate;
    }
  }
  if (known == nullptr) return BadInput("its dtype is unknown (found {})", Found(dtype));
  entry.dtype_name = known->name;

  const auto shape = ReadSizes(json.Find("shape"), kRankMax);
  if (!shape) {
    return BadInput("its shape must be at most {} integers, none negative (found {})", kRankMax,
                    Found(json.Find("shape")));
  }
  entry.shape = *shape;
  std::optional<uint64_t> size = known->bytes;
  for (int64_t dim : *shape) {
    size = CheckedMul(*size, static_cast<uint64_t>(dim));
    if (!size) return BadInput("its shape is too large (found {})", ShapeToString(*shape));
  }

  const auto offsets = ReadSizes(json.Find("data_offsets"), 2);
  if (!offsets || offsets->size() != 2 || (*offsets)[1] < (*offsets)[0]) {
    return BadInput("its data_offsets must be a begin and an end (found {})",
                    Found(json.Find("data_offsets")));
  }
  entry.begin = static_cast<uint64_t>((*offsets)[0]);
  entry.end = static_cast<uint64_t>((*offsets)[1]);
  if (entry.end - entry.begin != *size) {
    return BadInput("its data_offsets hold {} bytes, but {} of shape {} has {}",
                    entry.end - entry.begin, entry.dtype_name, ShapeToString(*shape), *size);
  }
  return entry;
}

// A tensor without elements shares its offset with the next one, so it sorts before it.
Status CheckTiling(const EntryMap& entries, uint64_t data_bytes) {
  std::vector<const EntryMap::value_type*> order;
  order.reserve(entries.size());
  for (const auto& named : entries) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t end = 0;
  for (const auto* named : order) {
    const Entry& entry = named->second;
    if (entry.begin != end) {
      return BadInput("tensor \"{}\": {} the tensor before it (found begin {} after end {})",
                      Visible(named->first), entry.begin < end ? "overlaps" : "leaves a hole after",
                      entry.begin, end);
    }
    end = entry.end;
  }
  if (end > data_bytes) {
    return BadInput("is cut short (found {} bytes of data, the header has {}); download it again",
                    data_bytes, end);
  }
  if (end < data_bytes) {
    return BadInput("has bytes after the last tensor (found {}, the header has {})", data_bytes,
                    end);
  }
  return Status();
}

Result<EntryMap> ParseEntries(std::span<const std::byte> bytes, uint64_t* data_begin) {
  MINISGL_ASSIGN_OR_RETURN(const std::string_view text, HeaderText(bytes));
  Result<Json> header =
      ParseJson(text, {.depth_max = kHeaderDepthMax, .values_max = kHeaderValuesMax});
  if (!header.ok()) return header.status().WithPrefix("header");
  if (!header->is_object()) return BadInput("has a header that is no object");
  EntryMap entries;
  for (const auto& [name, json] : header->as_object()) {
    if (name == "__metadata__") {
      MINISGL_RETURN_IF_ERROR(CheckMetadata(json));
      continue;
    }
    if (name.size() > kNameBytesMax) {
      return BadInput("has a tensor name of {} bytes (found \"{}\"); at most {} are allowed",
                      name.size(), Visible(name), kNameBytesMax);
    }
    if (entries.size() == kTensorsMax) return BadInput("has more than {} tensors", kTensorsMax);
    Result<Entry> entry = ReadEntry(json);
    if (!entry.ok()) {
      return entry.status().WithPrefix(fmt::format("tensor \"{}\"", Visible(name)));
    }
    entries.emplace(name, std::move(entry).value());
  }
  *data_begin = kLengthBytes + text.size();
  MINISGL_RETURN_IF_ERROR(CheckTiling(entries, bytes.size() - *data_begin));
  return entries;
}

}  // namespace

Result<std::map<std::string, SafetensorsFile::Entry, std::less<>>> SafetensorsFile::ParseHeader(
    std::span<const std::byte> bytes, const std::string& file, uint64_t* data_begin) {
  Result<EntryMap> entries = ParseEntries(bytes, data_begin);
  if (!entries.ok()) return entries.status().WithPrefix(Visible(file, 400));
  return entries;
}

}  // namespace minisgl
