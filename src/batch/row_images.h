// Pictures in the messages of a row: the parts of contents that are pictures, in the spellings of
// other programs, become parts {"type": "image"} and a list of what they name.
//
//   {"type": "image_url", "image_url": {"url": U, "detail": D}}, or U in place of the object
//   {"type": "input_image", "image_url": U, "detail": D}
//   {"type": "image", "image": U}, or with "url", "path" or "base64" in place of "image"
//
// U is a data: URI, whose bytes are decoded here; or a file: URL, a path, or an http: or https:
// URL, which are read later (image_reader.h). `uuid` beside it is ignored, since a picture is known
// by its content. Rows are untrusted. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

// How closely a picture is looked at, as services call it. kAuto and kHigh: as the options and the
// model say. kLow: with few tokens.
enum class ImageDetail : uint8_t { kAuto, kLow, kHigh };

// A picture that a message has.
struct RowImage {
  size_t message = 0;                        // its index in the row's messages
  std::string field;                         // "messages[0].content[1]"
  std::string name;                          // for errors: the path, or "a data: URI of N bytes"
  std::string path;                          // "" if the row has the bytes or a URL
  std::string url;                           // of the network: http:// or https://
  std::shared_ptr<const std::string> bytes;  // of a data: URI; else null
  ImageDetail detail = ImageDetail::kAuto;
  // Named by the user on the command line, not by a row: relative to the working directory, and
  // not bound to --image-root.
  bool is_users = false;
};

// The most pictures of a row.
inline constexpr size_t kRowImagesMax = 1000;

// True if `part`, an element of a content, is to be a picture by its type.
bool IsImagePart(const Json& part);

// Makes {"type": "image"} of `part` and returns the picture. kBadInput: what is wrong with it, for
// after its place and a colon. Members that are not known are added to `unknown`.
// REQUIRES IsImagePart(*part).
Result<RowImage> TakeImagePart(Json* part, std::vector<std::string>* unknown);

// The picture that `text` names: a path, a URL or a data: URI. kBadInput as above.
Result<RowImage> ImageNamed(std::string_view text);

// A picture that the user names on the command line or in a chat by `text`: a URL, or a path.
RowImage ImageOfUser(const std::string& text);

}  // namespace minisgl::batch
