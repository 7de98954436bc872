// The tables between bytes and the characters that spell them.
#include "text/tokenizer_json/byte_level.h"

#include <array>

#include "minisgl/base/utf8.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace {

constexpr char32_t kShifted = 0x100;  // the first character that spells another byte
constexpr size_t kShiftedBytes = 68;

bool IsItself(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD); }

struct Table {
  std::array<std::string, 256> spellings;
  std::array<uint8_t, kShifted + kShiftedBytes> bytes = {};
  std::array<bool, kShifted + kShiftedBytes> is_byte = {};
  Table() {
    char32_t shifted = kShifted;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t c = IsItself(byte) ? static_cast<char32_t>(byte) : shifted++;
      AppendUtf8(c, &spellings[byte]);
      bytes[c] = static_cast<uint8_t>(byte);
      is_byte[c] = true;
    }
  }
};

const Table& ByteTable() {
  static const Table kTable;
  return kTable;
}

}  // namespace

void AppendByteSpelling(std::string_view bytes, std::string* out) {
  const Table& table = ByteTable();
  for (char byte : bytes) *out += table.spellings[static_cast<uint8_t>(byte)];
}

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  const Table& table = ByteTable();
  std::string bytes;
  while (!spelling.empty()) {
    size_t length = 0;
    const char32_t c = FirstCharacter(spelling, &length);
    if (c >= table.bytes.size() || !table.is_byte[c]) return std::nullopt;
    bytes += static_cast<char>(table.bytes[c]);
    spelling.remove_prefix(length);
  }
  return bytes;
}

}  // namespace minisgl::text
