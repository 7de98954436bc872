#include "minisgl/base/file_kind.h"

#include <algorithm>
#include <cstddef>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr const char* kDownloadAgain = "download it again";
constexpr const char* kUnpack = "unpack it first";

struct Magic {
  std::string_view bytes;
  FileKind kind;
};

constexpr Magic kMagics[] = {
    {"version https://git-lfs", {"a git-lfs pointer", "run git lfs pull"}},
    {"\x1F\x8B", {"gzip", kUnpack}},
    {"\x28\xB5\x2F\xFD", {"zstd", kUnpack}},
    {"\xFD"
     "7zXZ",
     {"xz", kUnpack}},
    {"BZh", {"bzip2", kUnpack}},
    {"PK\x03\x04", {"a zip archive", kUnpack}},
    {"PAR1", {"Parquet", "convert it"}},
    {"ARROW1", {"Arrow", "convert it"}},
    {"GGUF", {"GGUF", "convert it"}},
    {"\xFF\xFE", {"UTF-16", "convert it to UTF-8"}},
    {"\xFE\xFF", {"UTF-16", "convert it to UTF-8"}},
};

// Beginnings, in small letters, of pages that a server sends in place of a file that it refuses.
constexpr Magic kPages[] = {
    {"<!doctype html", {"an HTML page", kDownloadAgain}},
    {"<html", {"an HTML page", kDownloadAgain}},
    {"<?xml", {"XML", kDownloadAgain}},
};

// So many zero bytes at its beginning are space that was reserved for a file and not written.
constexpr size_t kZerosMin = 16;

// Capitals count as small letters, and space before it as nothing.
bool IsPage(std::string_view text, std::string_view beginning) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.size() < beginning.size()) return false;
  return std::equal(beginning.begin(), beginning.end(), text.begin(), [](char small, char c) {
    return small == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  });
}

// ASCII in UTF-16 without a byte order mark.
bool IsUtf16(std::string_view begin) {
  if (begin.size() < 4) return false;
  const bool little = begin[0] != 0 && begin[1] == 0 && begin[2] != 0 && begin[3] == 0;
  const bool big = begin[0] == 0 && begin[1] != 0 && begin[2] == 0 && begin[3] != 0;
  return little || big;
}

}  // namespace

std::optional<FileKind> KindOfFile(std::string_view begin) {
  for (const Magic& magic : kMagics) {
    if (begin.starts_with(magic.bytes)) return magic.kind;
  }
  for (const Magic& page : kPages) {
    if (IsPage(begin, page.bytes)) return page.kind;
  }
  const std::string_view zeros = begin.substr(0, kZerosMin);
  if (zeros.size() == kZerosMin && zeros.find_first_not_of('\0') == std::string_view::npos) {
    return FileKind{"an incomplete download, which begins with zero bytes", kDownloadAgain};
  }
  if (IsUtf16(begin)) return FileKind{"UTF-16", "convert it to UTF-8"};
  return std::nullopt;
}

Status OrFileKind(Status status, std::string_view bytes, const std::string& file) {
  if (status.ok()) return status;
  if (bytes.empty()) {
    return BadInput("{}: is empty, as an incomplete download is; {}", Visible(file, 400),
                    kDownloadAgain);
  }
  const std::optional<FileKind> kind = KindOfFile(bytes);
  if (!kind) return status;
  return BadInput("{}: is {}; {}", Visible(file, 400), kind->name, kind->advice);
}

}  // namespace minisgl
