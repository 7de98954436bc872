// The header of a safetensors file: 8 bytes of length (little endian), that many bytes of JSON,
// then the data part.
//
// Rules, all checked before an offset is used:
//   the header is inside the file
//   the bytes of each tensor match its shape and dtype
//   the tensors, in order of offsets, cover the data part without gap, overlap or remainder
//
// A header may have 100 MB, so it is scanned twice and not kept in memory: the first pass checks
// all of it with 32 bytes a tensor, the second one, of a valid header, makes the entries.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/file_kind.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {
namespace {

using Entry = SafetensorsFile::Entry;
using EntryMap = std::map<std::string, Entry, std::less<>>;
using Token = JsonScanner::Token;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr int kHeaderDepthMax = 8;
constexpr size_t kNameBytesMax = 512;
constexpr size_t kRawNameBytesMax = 6 * kNameBytesMax + 2;  // each byte as \u00NN, in quotes
constexpr size_t kRankMax = 8;
constexpr size_t kTensorsMax = 1'000'000;
// The shortest entry of a tensor: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]},
constexpr size_t kEntryBytesMin = 49;
constexpr size_t kMembersMax = 16;           // of one tensor; three mean something
constexpr size_t kMetadataKeysMax = 16'384;  // trainers write some dozens
constexpr size_t kMetadataBytesMin = 6;      // "":"" and a comma
constexpr size_t kFoundBytesMax = 60;

struct DTypeSize {
  std::string_view name;
  uint64_t bytes;
};
constexpr DTypeSize kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},
};

// The place of a name in the header, with a hash to find duplicates.
struct NamedPlace {
  uint64_t hash = 0;
  uint64_t begin = 0, end = 0;  // offsets of the tensor's data
  uint32_t name_at = 0;
};

// Hostile names can share a hash, so names with equal hashes are compared.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string NameAt(std::string_view text, const NamedPlace& place) {
  JsonScanner scanner(text.substr(place.name_at), 1);
  MINISGL_CHECK(scanner.Next(), "no name at byte {} of the header", place.name_at);
  return UnquoteJson(scanner.raw());
}

// Sorts `places`. An error if a name occurs twice.
Status CheckNoDuplicate(std::string_view text, std::vector<NamedPlace>* places) {
  std::sort(places->begin(), places->end(), [text](const NamedPlace& a, const NamedPlace& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    return a.name_at != b.name_at && NameAt(text, a) < NameAt(text, b);
  });
  for (size_t i = 1; i < places->size(); ++i) {
    const NamedPlace &before = (*places)[i - 1], &place = (*places)[i];
    if (before.hash != place.hash) continue;
    const std::string name = NameAt(text, place);
    if (name == NameAt(text, before)) {
      return BadInput("header: duplicate key \"{}\"", Visible(name));
    }
  }
  return Status();
}

std::string Found(std::string_view raw) {
  return raw.empty() ? "nothing" : Visible(raw, kFoundBytesMax);
}

// The characters of `raw`, a string or key; an error if longer than a name may be.
Result<std::string> ReadName(std::string_view raw, const char* what) {
  std::string name;
  if (raw.size() <= kRawNameBytesMax) name = UnquoteJson(raw);
  if (raw.size() > kRawNameBytesMax || name.size() > kNameBytesMax) {
    return BadInput("has a {} of {} bytes (found \"{}\"); at most {} are allowed", what,
                    name.empty() ? raw.size() - 2 : name.size(), Visible(raw.substr(1, 100)),
                    kNameBytesMax);
  }
  return name;
}

// The non-negative integers of the array `raw`; nullopt if it is anything else or has more than
// `count_max` elements.
std::optional<std::vector<int64_t>> ReadSizes(std::string_view raw, size_t count_max) {
  std::vector<int64_t> sizes;
  if (!raw.starts_with('[')) return {};
  JsonScanner scanner(raw, kHeaderDepthMax);
  scanner.Next();
  while (scanner.Next() && scanner.token() != Token::kEndArray) {
    const std::string_view digits = scanner.raw();
    const char* const end = digits.data() + digits.size();
    int64_t size = 0;
    if (scanner.token() != Token::kNumber || digits[0] == '-') return {};
    const auto [rest, error] = std::from_chars(digits.data(), end, size);
    if (error != std::errc() || rest != end || sizes.size() == count_max) return {};
    sizes.push_back(size);
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

// The members of a tensor's object as raw JSON; "" for absent ones.
struct Members {
  std::string_view dtype, shape, offsets;
};

// Reads the members of the next value.
Result<Members> ReadMembers(JsonScanner* scanner) {
  if (!scanner->Next()) return scanner->status();
  if (scanner->token() != Token::kBeginObject) {
    const char* type = JsonTypeName(scanner->raw());
    while (scanner->depth() > 1 && scanner->Next()) {  // reports invalid JSON first
    }
    MINISGL_RETURN_IF_ERROR(scanner->status());
    return BadInput("an object is needed (found {})", type);
  }
  Members members;
  std::array<std::string, kMembersMax> keys;
  size_t num_keys = 0;
  while (scanner->Next() && scanner->token() != Token::kEndObject) {
    if (num_keys == kMembersMax) return BadInput("has more than {} members", kMembersMax);
    MINISGL_ASSIGN_OR_RETURN(std::string key, ReadName(scanner->raw(), "member name"));
    std::string_view value;
    if (!scanner->SkipValue(&value)) break;
    if (std::find(keys.begin(), keys.begin() + num_keys, key) != keys.begin() + num_keys) {
      return BadInput("duplicate key \"{}\"", Visible(key));
    }
    if (key == "dtype") members.dtype = value;
    if (key == "shape") members.shape = value;
    if (key == "data_offsets") members.offsets = value;
    keys[num_keys++] = std::move(key);
  }
  MINISGL_RETURN_IF_ERROR(scanner->status());
  return members;
}

// The entry of one tensor, checked for consistency.
Result<Entry> ReadEntry(JsonScanner* scanner) {
  MINISGL_ASSIGN_OR_RETURN(const Members members, ReadMembers(scanner));
  Entry entry;
  const DTypeSize* known = nullptr;
  // Longer JSON cannot spell the name of a known dtype.
  if (members.dtype.starts_with('"') && members.dtype.size() < kFoundBytesMax) {
    const std::string dtype = UnquoteJson(members.dtype);
    for (const DTypeSize& candidate : kDTypes) {
      if (dtype == candidate.name) known = &candidate;
    }
  }
  if (known == nullptr) {
    return BadInput("its dtype is unknown (found {})", Found(members.dtype));
  }
  entry.dtype_name = known->name;

  const auto shape = ReadSizes(members.shape, kRankMax);
  if (!shape) {
    return BadInput("its shape must be at most {} integers, none negative (found {})", kRankMax,
                    Found(members.shape));
  }
  entry.shape = *shape;
  std::optional<uint64_t> size = known->bytes;
  for (int64_t dim : *shape) {
    size = CheckedMul(*size, static_cast<uint64_t>(dim));
    if (!size) return BadInput("its shape is too large (found {})", ShapeToString(*shape));
  }

  const auto offsets = ReadSizes(members.offsets, 2);
  if (!offsets || offsets->size() != 2 || (*offsets)[1] < (*offsets)[0]) {
    return BadInput("its data_offsets must be a begin and an end (found {})",
                    Found(members.offsets));
  }
  entry.begin = static_cast<uint64_t>((*offsets)[0]);
  entry.end = static_cast<uint64_t>((*offsets)[1]);
  if (entry.end - entry.begin != *size) {
    return BadInput("its data_offsets hold {} bytes, but {} of shape {} has {}",
                    entry.end - entry.begin, entry.dtype_name, ShapeToString(*shape), *size);
  }
  return entry;
}

// Checks the value of __metadata__, which is next: strings only, without duplicate keys.
Status CheckMetadata(std::string_view text, JsonScanner* scanner) {
  if (!scanner->Next()) return scanner->status();
  if (scanner->token() == Token::kNull) return Status();
  if (scanner->token() != Token::kBeginObject) {
    return BadInput("__metadata__ must be an object (found {})", JsonTypeName(scanner->raw()));
  }
  std::vector<NamedPlace> keys;
  keys.reserve(std::min(kMetadataKeysMax, text.size() / kMetadataBytesMin + 1));
  while (scanner->Next() && scanner->token() != Token::kEndObject) {
    if (keys.size() == kMetadataKeysMax) {
      return BadInput("__metadata__ has more than {} keys", kMetadataKeysMax);
    }
    const auto at = static_cast<uint32_t>(scanner->begin());
    MINISGL_ASSIGN_OR_RETURN(const std::string key, ReadName(scanner->raw(), "__metadata__ key"));
    if (!scanner->Next()) break;
    if (scanner->token() != Token::kString) {
      return BadInput("__metadata__ holds strings only (found {} at \"{}\")",
                      JsonTypeName(scanner->raw()), Visible(key));
    }
    keys.push_back({.hash = HashOf(key), .name_at = at});
  }
  MINISGL_RETURN_IF_ERROR(scanner->status());
  return CheckNoDuplicate(text, &keys);
}

using UseTensor = std::function<Status(size_t name_at, std::string name, Entry entry)>;

// Calls `use` for each tensor of the header, in its order; stops at the first error.
Status ForEachTensor(std::string_view text, const UseTensor& use) {
  JsonScanner scanner(text, kHeaderDepthMax);
  bool has_metadata = false;
  if (!scanner.Next()) return scanner.status();
  while (scanner.Next() && scanner.token() != Token::kEndObject) {
    const size_t name_at = scanner.begin();
    MINISGL_ASSIGN_OR_RETURN(std::string name, ReadName(scanner.raw(), "tensor name"));
    if (name == "__metadata__") {
      if (has_metadata) return BadInput("header: duplicate key \"{}\"", name);
      has_metadata = true;
      MINISGL_RETURN_IF_ERROR(CheckMetadata(text, &scanner));
      continue;
    }
    Result<Entry> entry = ReadEntry(&scanner);
    if (!entry.ok()) {
      return entry.status().WithPrefix(fmt::format("tensor \"{}\"", Visible(name)));
    }
    MINISGL_RETURN_IF_ERROR(use(name_at, std::move(name), std::move(entry).value()));
  }
  scanner.Next();  // to the end
  return scanner.status().WithPrefix("header");
}

// A tensor without elements shares its offset with the next one, so it sorts before it.
Status CheckTiling(std::string_view text, uint64_t data_bytes, std::vector<NamedPlace>* places) {
  std::sort(places->begin(), places->end(), [](const NamedPlace& a, const NamedPlace& b) {
    return std::tuple(a.begin, a.end, a.name_at) < std::tuple(b.begin, b.end, b.name_at);
  });
  uint64_t end = 0;
  for (const NamedPlace& place : *places) {
    if (place.begin != end) {
      return BadInput("tensor \"{}\": {} the tensor before it (found begin {} after end {})",
                      Visible(NameAt(text, place)),
                      place.begin < end ? "overlaps" : "leaves a hole after", place.begin, end);
    }
    end = place.end;
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
  *data_begin = kLengthBytes + text.size();
  {
    std::vector<NamedPlace> places;
    places.reserve(std::min(kTensorsMax, text.size() / kEntryBytesMin + 1));
    MINISGL_RETURN_IF_ERROR(
        ForEachTensor(text, [&](size_t name_at, const std::string& name, const Entry& entry) {
          if (places.size() == kTensorsMax) {
            return BadInput("has more than {} tensors", kTensorsMax);
          }
          places.push_back({HashOf(name), entry.begin, entry.end, static_cast<uint32_t>(name_at)});
          return Status();
        }));
    MINISGL_RETURN_IF_ERROR(CheckNoDuplicate(text, &places));
    MINISGL_RETURN_IF_ERROR(CheckTiling(text, bytes.size() - *data_begin, &places));
  }
  EntryMap entries;
  MINISGL_RETURN_IF_ERROR(ForEachTensor(text, [&](size_t, std::string name, Entry entry) {
    entries.emplace(std::move(name), std::move(entry));
    return Status();
  }));
  return entries;
}

}  // namespace

Result<std::map<std::string, SafetensorsFile::Entry, std::less<>>> SafetensorsFile::ParseHeader(
    std::span<const std::byte> bytes, const std::string& file, uint64_t* data_begin) {
  Result<EntryMap> entries = ParseEntries(bytes, data_begin);
  if (!entries.ok()) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return OrFileKind(entries.status().WithPrefix(Visible(file, 400)), text, file);
  }
  return entries;
}

}  // namespace minisgl
