// Any bytes as a PNG picture: as they are, and with right checksums, without which most of them are
// refused before they reach the decoder.
#include <algorithm>
#include <string>

#include "fuzz/picture_check.h"

namespace {

uint32_t Checksum(std::string_view bytes) {
  uint32_t sum = 0xffffffff;
  for (const char byte : bytes) {
    sum ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~sum;
}

// Sets the checksum of each whole chunk behind the signature.
void SetChecksums(std::string* png) {
  constexpr size_t kFrame = 12;  // length, name and checksum
  for (size_t at = 8; png->size() - std::min(at, png->size()) >= kFrame;) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>((*png)[at + i]);
    if (length > png->size() - at - kFrame) return;
    const uint32_t sum = Checksum(std::string_view(*png).substr(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) {
      (*png)[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xff);
    }
    at += kFrame + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  minisgl::CheckPicture(given);
  std::string bytes(given);
  SetChecksums(&bytes);
  if (bytes != given) minisgl::CheckPicture(bytes);
  return 0;
}
