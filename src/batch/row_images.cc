#include "batch/row_images.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "minisgl/base/base64.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

constexpr size_t kPathBytesMax = 4096;
constexpr size_t kUrlBytesMax = 8192;
constexpr size_t kShownBytesMax = 100;

// The members of a part of type image that may hold the picture.
constexpr std::array<std::string_view, 4> kSources = {"image", "url", "path", "base64"};

bool StartsWithWord(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) {
           return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
         });
}

// The first character of `text` that is not of base64, as errors show it.
std::string WhatIsNotBase64(std::string_view text) {
  const auto is_digit = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/';
  };
  std::string_view digits = text;
  while (digits.ends_with('=') && text.size() - digits.size() < 2) digits.remove_suffix(1);
  const auto bad = std::find_if_not(digits.begin(), digits.end(), is_digit);
  if (bad == digits.end()) return fmt::format("its length or its end, after {} bytes", text.size());
  const auto place = static_cast<size_t>(bad - digits.begin());
  std::string shown = Visible(digits.substr(place, Utf8CharLength(digits.substr(place))), 20);
  if (shown.empty()) shown = fmt::format("the byte {}", static_cast<uint8_t>(*bad));
  return fmt::format("\"{}\" after {} bytes", shown, place);
}

Result<RowImage> ImageOfBase64(std::string_view text, const char* what) {
  std::optional<std::string> bytes = DecodeBase64(text);
  if (!bytes || bytes->empty()) {
    return BadInput("{} must be base64 with its padding and without line breaks (found {})", what,
                    text.empty() ? "nothing" : WhatIsNotBase64(text));
  }
  RowImage image;
  image.name = fmt::format("{} of {} bytes", what, bytes->size());
  image.bytes = std::make_shared<const std::string>(std::move(*bytes));
  return image;
}

Result<RowImage> ImageOfDataUri(std::string_view uri) {
  const size_t comma = uri.substr(0, kPathBytesMax).find(',');
  const std::string_view head = uri.substr(0, comma == std::string_view::npos ? 40 : comma);
  const bool is_image = StartsWithWord(head, "data:image/") || StartsWithWord(head, "data:;");
  const bool is_base64 =
      head.size() >= 7 && StartsWithWord(head.substr(head.size() - 7), ";base64");
  if (comma == std::string_view::npos || !is_image || !is_base64) {
    return BadInput("a data: URI of a picture begins with data:image/TYPE;base64, (found {})",
                    Visible(head, kShownBytesMax));
  }
  return ImageOfBase64(uri.substr(comma + 1), "a data: URI");
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Replaces "%20" and its like; nullopt if a percent sign stands before anything else.
std::optional<std::string> WithoutPercents(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return plain;
}

Result<RowImage> ImageOfPath(std::string path) {
  if (path.empty()) return BadInput("names no file (found \"\")");
  if (path.find('\0') != std::string::npos) {
    return BadInput("names a file with a NUL character (found {})", Visible(path, kShownBytesMax));
  }
  if (path.size() > kPathBytesMax) {
    return BadInput(
        "names a file by {} bytes, and a path has at most {}; give bytes as a data: URI "
        "(data:image/png;base64,...)",
        path.size(), kPathBytesMax);
  }
  RowImage image;
  image.name = path;
  image.path = std::move(path);
  return image;
}

// file:///absolute, file:/absolute, file://localhost/absolute and file:relative.
Result<RowImage> ImageOfFileUrl(std::string_view url) {
  std::string_view rest = url.substr(std::string_view("file:").size());
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    if (StartsWithWord(rest, "localhost/")) rest.remove_prefix(9);
    if (!rest.starts_with('/')) {
      return BadInput(
          "names a file of another machine (found {}); write file:///DIR/FILE, or file:DIR/FILE "
          "for a path from the folder of the rows' file",
          Visible(url, kShownBytesMax));
    }
  }
  std::optional<std::string> path = WithoutPercents(rest);
  if (!path) {
    return BadInput("has a % without two hexadecimal digits (found {}); write %25 for it",
                    Visible(url, kShownBytesMax));
  }
  return ImageOfPath(std::move(*path));
}

// The scheme of a URL, as "https"; "" of a path.
std::string_view SchemeOf(std::string_view text) {
  const size_t end = text.substr(0, 20).find("://");
  if (end == std::string_view::npos || end < 2) return "";
  const std::string_view scheme = text.substr(0, end);
  const bool is_one = std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '.' || c == '-';
  });
  return is_one ? scheme : "";
}

bool IsNetworkScheme(std::string_view scheme) {
  return (scheme.size() == 4 && StartsWithWord(scheme, "http")) ||
         (scheme.size() == 5 && StartsWithWord(scheme, "https"));
}

Result<RowImage> ImageOfUrl(std::string_view url) {
  if (url.size() > kUrlBytesMax) {
    return BadInput("names a picture by a URL of {} bytes, and one has at most {}", url.size(),
                    kUrlBytesMax);
  }
  RowImage image;
  image.name = image.url = url;
  return image;
}

Status BadSource(std::string_view member, const Json& value, const char* must_be) {
  return BadInput("must have {} as {} (found {})", must_be, member,
                  Visible(value.Dump(), kShownBytesMax));
}

Status TakeDetail(const Json& value, RowImage* image) {
  if (value.is_null() || value == Json("auto")) return Status();
  if (value == Json("low")) {
    image->detail = ImageDetail::kLow;
  } else if (value == Json("high")) {
    image->detail = ImageDetail::kHigh;
  } else {
    return BadSource("detail", value, "auto, low or high");
  }
  return Status();
}

// Takes {"url": U, "detail": D}.
Result<RowImage> ImageOfObject(const Json& object, std::vector<std::string>* unknown) {
  const Json* const url = object.Find("url");
  if (url == nullptr || !url->is_string()) {
    return BadSource("image_url.url", url == nullptr ? Json() : *url, "a string");
  }
  MINISGL_ASSIGN_OR_RETURN(RowImage image, ImageNamed(url->as_string()));
  for (const auto& [key, value] : object.as_object()) {
    if (key == "detail") {
      MINISGL_RETURN_IF_ERROR(TakeDetail(value, &image));
    } else if (key != "url" && key != "uuid") {
      unknown->push_back("image_url." + Visible(key));
    }
  }
  return image;
}

// Takes the picture of a part of type image_url or input_image.
Result<RowImage> ImageOfUrlPart(const Json& part, std::vector<std::string>* unknown) {
  if (const Json* const id = part.Find("file_id"); id != nullptr && !id->is_null()) {
    return BadInput("names an uploaded file (found file_id {}); give its bytes or its path",
                    Visible(id->Dump(), kShownBytesMax));
  }
  const Json* const url = part.Find("image_url");
  if (url != nullptr && url->is_object()) return ImageOfObject(*url, unknown);
  if (url != nullptr && url->is_string()) return ImageNamed(url->as_string());
  return BadSource("image_url", url == nullptr ? Json() : *url,
                   "a string, or an object with a url,");
}

// Takes the picture of a part of type image.
Result<RowImage> ImageOfImagePart(const Json& part) {
  const Json* source = nullptr;
  std::string_view name;
  for (const std::string_view member : kSources) {
    const Json* const value = part.Find(member);
    if (value == nullptr || value->is_null()) continue;
    if (source != nullptr) {
      return BadInput("has both {} and {}; give the picture once", name, member);
    }
    source = value;
    name = member;
  }
  if (source == nullptr) {
    return BadInput("must have image, url, path or base64 (found {})",
                    Visible(part.Dump(), kShownBytesMax));
  }
  if (!source->is_string()) return BadSource(name, *source, "a string");
  const std::string& text = source->as_string();
  if (name == "path") return ImageOfPath(text);
  if (name == "base64" && !StartsWithWord(text, "data:")) return ImageOfBase64(text, "base64");
  return ImageNamed(text);
}

}  // namespace

bool IsImagePart(const Json& part) {
  const Json* const type = part.Find("type");
  return type != nullptr &&
         (*type == Json("image_url") || *type == Json("input_image") || *type == Json("image"));
}

Result<RowImage> ImageNamed(std::string_view text) {
  if (StartsWithWord(text, "data:")) return ImageOfDataUri(text);
  if (StartsWithWord(text, "file:")) return ImageOfFileUrl(text);
  const std::string_view scheme = SchemeOf(text);
  if (scheme.empty()) return ImageOfPath(std::string(text));
  if (IsNetworkScheme(scheme)) return ImageOfUrl(text);
  return BadInput(
      "names a picture by {} (found {}); name a file, or an http:// or https:// URL, or give its "
      "bytes as a data: URI",
      Visible(scheme), Visible(text, kShownBytesMax));
}

RowImage ImageOfUser(const std::string& text) {
  RowImage image;
  image.name = text;
  image.is_users = true;
  (IsNetworkScheme(SchemeOf(text)) ? image.url : image.path) = text;
  return image;
}

Result<RowImage> TakeImagePart(Json* part, std::vector<std::string>* unknown) {
  const bool is_plain = *part->Find("type") == Json("image");
  Result<RowImage> image = is_plain ? ImageOfImagePart(*part) : ImageOfUrlPart(*part, unknown);
  if (!image.ok()) return image;
  for (const auto& [key, value] : part->as_object()) {
    if (key == "type" || key == "uuid") continue;
    const bool is_source = is_plain
                               ? std::find(kSources.begin(), kSources.end(), key) != kSources.end()
                               : key == "image_url" || key == "file_id";
    if (key == "detail") {
      MINISGL_RETURN_IF_ERROR(TakeDetail(value, &*image));
    } else if (!is_source) {
      unknown->push_back(Visible(key));
    }
  }
  *part = Json(Json::Object());
  part->Set("type", "image");
  return image;
}

}  // namespace minisgl::batch
