// Validation of a sentencepiece normalisation table (precompiled_charsmap).
//
// Format:
//   u32 little-endian   size of the trie in bytes
//   the trie            a double array of u32 units
//   replacements        strings, each terminated by a zero byte
// Bits of a unit:
//   0-7      label
//   8        a rule ends here
//   9, 10-30 the offset to the children
//   31       leaf: the other bits are the place of the replacement
// The library walks the trie by the bytes of a text without bounds checks, so every unit that a
// text can reach is visited here first.
#include "text/sentencepiece/charsmap.h"

#include <cstdint>
#include <deque>
#include <vector>

#include "minisgl/base/utf8.h"

namespace minisgl::text {
namespace {

constexpr uint32_t kLeafBit = uint32_t{1} << 31;
constexpr size_t kUnitsMax = size_t{1} << 22;  // 16 MiB; the NFKC tables of real models have 60,000
constexpr int kRulesMax = 32;                  // the library's result array
constexpr size_t kReplacementBytesMax = 256;   // NFKC needs 33
constexpr uint64_t kWalkStepsMax = 400'000'000;  // about a second; real tables take 20 million

uint32_t ReadU32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

class TrieCheck {
 public:
  TrieCheck(std::string_view trie, std::string_view replacements)
      : trie_(trie),
        replacements_(replacements),
        num_units_(trie.size() / 4),
        rules_(num_units_, -1) {}

  // Visits every reachable unit. `rules_` is the maximum number of rules on a path to it. A unit is
  // visited again only if that number grows, at most kRulesMax times, so cycles terminate.
  Status Run() {
    // The library looks for a rule only after a byte, so not at the root, unless a path leads back
    // to it.
    MINISGL_RETURN_IF_ERROR(CheckChildren(0));
    Enqueue(0, 0);
    while (!queue_.empty()) {
      const uint32_t at = queue_.front();
      queue_.pop_front();
      const uint32_t base = Base(at);
      for (uint32_t label = 0; label < 256; ++label) {
        const uint32_t child = base ^ label;
        if ((Unit(child) & (kLeafBit | 0xFF)) == label) {
          MINISGL_RETURN_IF_ERROR(Reach(child, rules_[at]));
        }
      }
      steps_ += 256;
      if (steps_ > kWalkStepsMax)
        return BadInput("the normalisation table is too complex to be checked");
    }
    return {};
  }

 private:
  uint32_t Unit(uint32_t index) const { return ReadU32(trie_.data() + size_t{4} * index); }
  static uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  uint32_t Base(uint32_t index) const { return index ^ Offset(Unit(index)); }

  Status CheckChildren(uint32_t index) const {
    if ((Base(index) | 0xFF) < num_units_) return {};
    return BadInput("the normalisation table points outside itself (unit {})", index);
  }

  Status Reach(uint32_t index, int rules_before) {
    MINISGL_RETURN_IF_ERROR(CheckChildren(index));
    int rules = rules_before;
    if ((Unit(index) >> 8 & 1) != 0) {
      MINISGL_RETURN_IF_ERROR(CheckReplacement(Unit(Base(index)) & ~kLeafBit));
      ++rules;
    }
    if (rules > kRulesMax)
      return BadInput("more than {} rules of the normalisation table are prefixes of one another",
                      kRulesMax);
    Enqueue(index, rules);
    return {};
  }

  void Enqueue(uint32_t index, int rules) {
    if (rules <= rules_[index]) return;
    rules_[index] = static_cast<int8_t>(rules);
    queue_.push_back(index);
  }

  Status CheckReplacement(uint32_t place) {
    if (place >= replacements_.size())
      return BadInput("a normalisation rule's text lies outside the table");
    const std::string_view rest = replacements_.substr(place, kReplacementBytesMax + 1);
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) {
      return BadInput("a normalisation rule's text is longer than {} bytes", kReplacementBytesMax);
    }
    if (!IsValidUtf8(rest.substr(0, end)))
      return BadInput("a normalisation rule's text is not UTF-8");
    return {};
  }

  std::string_view trie_, replacements_;
  size_t num_units_;
  std::vector<int8_t> rules_;
  std::deque<uint32_t> queue_;
  uint64_t steps_ = 0;
};

}  // namespace

Status CheckCharsmap(std::string_view blob) {
  if (blob.size() <= 4) {
    return BadInput("the normalisation table is truncated ({} bytes)", blob.size());
  }
  const uint64_t trie_bytes = ReadU32(blob.data());
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= blob.size() - 4 ||
      trie_bytes / 4 > kUnitsMax) {
    return BadInput("the normalisation table has a trie of {} bytes in {}", trie_bytes,
                    blob.size() - 4);
  }
  const std::string_view trie = blob.substr(4, trie_bytes);
  const std::string_view replacements = blob.substr(4 + trie_bytes);
  if (replacements.back() != '\0')
    return BadInput("the last text of the normalisation table is not terminated");
  return TrieCheck(trie, replacements).Run();
}

}  // namespace minisgl::text
