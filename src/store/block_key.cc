#include "store/block_key.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <vector>
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

MarksDigest DigestOfMarks(const PrefixKey& block) {
  if (block.marks().empty()) return std::nullopt;
  Sha256 hash;
  AddMarks(block, &hash);
  return hash.Finish();
}

KvBlockKey ChildKey(const KvBlockKey& parent, std::span<const TokenId> block_tokens,
                    const MarksDigest& marks) {
  Sha256 hash;
  hash.Add(BytesOf(std::span<const uint8_t>(parent)));
  hash.Add(BytesOf(block_tokens));
  if (marks) hash.Add(BytesOf(std::span<const uint8_t>(*marks)));
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

std::vector<KvBlockKey> KvBlockKeys(const std::string& identity, const PrefixKey& key) {
  std::vector<KvBlockKey> keys;
  keys.reserve(key.size() / kKvBlockTokens);
  KvBlockKey last = store::RootKey(identity);
  for (size_t at = 0; at + kKvBlockTokens <= key.size(); at += kKvBlockTokens) {
    last = store::ChildKey(last, key.subspan(at, kKvBlockTokens));
    keys.push_back(last);
  }
  return keys;
}

}  // namespace minisgl
