// Base64 (RFC 4648, with padding, without line breaks). Pure and thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minisgl {

// The bytes that `text` stands for; nullopt if it is not base64. No two texts decode to the same
// bytes.
std::optional<std::string> DecodeBase64(std::string_view text);

std::string EncodeBase64(std::string_view bytes);

}  // namespace minisgl
