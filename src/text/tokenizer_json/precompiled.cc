// See precompiled.h. The format of the table is in sentencepiece/charsmap.cc, which checks it.
#include "text/tokenizer_json/precompiled.h"

#include <utf8proc.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/base64.h"
#include "minisgl/text/tokenizer.h"
#include "text/sentencepiece/charsmap.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace {

uint32_t WordAt(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

class Precompiled : public Normalizer {
 public:
  // REQUIRES a table that CheckCharsmap accepts.
  explicit Precompiled(std::string_view blob) {
    const size_t num_units = WordAt(blob, 0) / 4;
    for (size_t i = 0; i < num_units; ++i) units_.push_back(WordAt(blob, 4 + 4 * i));
    texts_ = blob.substr(4 + 4 * num_units);
  }

  Status Run(std::string* text) const override {
    std::string out;
    out.reserve(text->size());
    for (std::string_view rest = *text; !rest.empty();) {
      const size_t length = ClusterLength(rest);
      AppendCluster(rest.substr(0, length), &out);
      rest.remove_prefix(length);
      if (out.size() > kTextBytesMax) {
        return BadInput("the text is too long after normalisation (more than {} MiB); shorten it",
                        kTextBytesMax >> 20);
      }
    }
    *text = std::move(out);
    return {};
  }

 private:
  // Bytes of the first cluster, by Unicode's rules.
  static size_t ClusterLength(std::string_view text) {
    size_t at = 0;
    char32_t last = FirstCharacter(text, &at);
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
      const bool is_plain = last < 0x80 && last != '\r' && (text[at] & 0x80) == 0;
      if (is_plain) break;
      size_t length = 0;
      const char32_t next = FirstCharacter(text.substr(at), &length);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                           static_cast<utf8proc_int32_t>(next), &state)) {
        break;
      }
      at += length;
      last = next;
    }
    return at;
  }

  void AppendCluster(std::string_view cluster, std::string* out) const {
    constexpr size_t kWholeBytesMax = 5;  // longer ones are replaced character by character
    if (cluster.size() <= kWholeBytesMax) {
      if (const auto text = Replacement(cluster)) {
        *out += *text;
        return;
      }
    }
    while (!cluster.empty()) {
      size_t length = 0;
      FirstCharacter(cluster, &length);
      const std::string_view character = cluster.substr(0, length);
      *out += Replacement(character).value_or(character);
      cluster.remove_prefix(length);
    }
  }

  // What the shortest rule at the beginning of `text` has in its place.
  std::optional<std::string_view> Replacement(std::string_view text) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    uint32_t at = offset(units_[0]);
    for (const char c : text) {
      const auto label = static_cast<uint8_t>(c);
      if (label == 0) break;
      at ^= label;
      const uint32_t unit = units_[at];
      if ((unit & ((1u << 31) | 0xFF)) != label) break;
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      const std::string_view rest =
          std::string_view(texts_).substr(units_[at] & ~(uint32_t{1} << 31));
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

Result<std::unique_ptr<const Normalizer>> ReadPrecompiled(const JsonPlace& place) {
  const JsonPlace table = place["precompiled_charsmap"];
  MINISGL_ASSIGN_OR_RETURN(const std::string text, table.String());
  const std::optional<std::string> blob = DecodeBase64(text);
  if (!blob) return table.Error("is not base64");
  const Status status = CheckCharsmap(*blob);
  if (!status.ok()) return table.Error("is damaged: {}", status.message());
  return std::unique_ptr<const Normalizer>(std::make_unique<Precompiled>(*blob));
}

}  // namespace minisgl::text
