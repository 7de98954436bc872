#include "store/block_key.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "minisgl/base/sha256.h"

namespace minisgl {
namespace store {
namespace {

// Another text for every change of how keys are made.
constexpr std::string_view kRootText = "minisgl blocks of keys and values, 1\n";

template <typename T>
std::string_view BytesOf(std::span<const T> values) {
  static_assert(std::endian::native == std::endian::little, "keys hash little-endian token ids");
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

KvBlockKey RootKey(const std::string& identity) {
  Sha256 hash;
  hash.Add(kRootText);
  hash.Add(identity);
  return hash.Finish();
}

KvBlockKey ChildKey(const KvBlockKey& parent, std::span<const TokenId> block_tokens) {
  Sha256 hash;
  hash.Add(BytesOf(std::span<const uint8_t>(parent)));
  hash.Add(BytesOf(block_tokens));
  return hash.Finish();
}

std::string HexOf(const KvBlockKey& key) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : key) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace store

std::vector<KvBlockKey> KvBlockKeys(const std::string& identity, std::span<const TokenId> tokens) {
  std::vector<KvBlockKey> keys;
  keys.reserve(tokens.size() / kKvBlockTokens);
  KvBlockKey key = store::RootKey(identity);
  for (; tokens.size() >= kKvBlockTokens; tokens = tokens.subspan(kKvBlockTokens)) {
    key = store::ChildKey(key, tokens.first(kKvBlockTokens));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace minisgl
