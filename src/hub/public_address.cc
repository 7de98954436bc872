#include "hub/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace minisgl::hub {
namespace {

using Bytes6 = std::array<uint8_t, 16>;

struct Range4 {
  uint32_t first;
  int num_bits;
};

constexpr uint32_t Address4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

constexpr Range4 kReserved4[] = {
    {Address4(0, 0, 0, 0), 8},        // this network
    {Address4(10, 0, 0, 0), 8},       // private
    {Address4(100, 64, 0, 0), 10},    // shared by customers of a provider
    {Address4(127, 0, 0, 0), 8},      // loopback
    {Address4(169, 254, 0, 0), 16},   // link-local
    {Address4(172, 16, 0, 0), 12},    // private
    {Address4(192, 0, 0, 0), 24},     // of protocols
    {Address4(192, 0, 2, 0), 24},     // of documents
    {Address4(192, 88, 99, 0), 24},   // relays of 6to4, which are no longer used
    {Address4(192, 168, 0, 0), 16},   // private
    {Address4(198, 18, 0, 0), 15},    // of benchmarks
    {Address4(198, 51, 100, 0), 24},  // of documents
    {Address4(203, 0, 113, 0), 24},   // likewise
    {Address4(224, 0, 0, 0), 4},      // multicast
    {Address4(240, 0, 0, 0), 4},      // reserved, and the broadcast
};

struct Range6 {
  Bytes6 first;
  int num_bits;
};

// Within 2000::/3, outside of which nothing is public but what stands for an address of IPv4.
constexpr Range6 kReserved6[] = {
    {{0x20, 0x01, 0x00}, 23},        // of protocols, Teredo among them
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // of documents
    {{0x3f, 0xff}, 20},              // likewise
};

bool IsIn(const Bytes6& address, const Bytes6& first, int num_bits) {
  for (int bit = 0; bit < num_bits; bit += 8) {
    const int left = std::min(num_bits - bit, 8);
    const auto mask = static_cast<uint8_t>(0xff << (8 - left));
    const auto at = static_cast<size_t>(bit / 8);
    if ((address[at] & mask) != (first[at] & mask)) return false;
  }
  return true;
}

bool IsPublic4(uint32_t address) {
  return std::none_of(std::begin(kReserved4), std::end(kReserved4), [address](const Range4& range) {
    return address >> (32 - range.num_bits) == range.first >> (32 - range.num_bits);
  });
}

uint32_t Address4At(const Bytes6& bytes, size_t at) {
  return Address4(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
}

bool IsPublic6(const Bytes6& address) {
  constexpr Bytes6 kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr Bytes6 kTranslated = {0x00, 0x64, 0xff, 0x9b};
  constexpr Bytes6 k6To4 = {0x20, 0x02};
  constexpr Bytes6 kGlobal = {0x20};
  if (IsIn(address, kMapped, 96) || IsIn(address, kTranslated, 96)) {
    return IsPublic4(Address4At(address, 12));
  }
  if (IsIn(address, k6To4, 16)) return IsPublic4(Address4At(address, 2));
  if (!IsIn(address, kGlobal, 3)) return false;
  return std::none_of(std::begin(kReserved6), std::end(kReserved6), [&](const Range6& range) {
    return IsIn(address, range.first, range.num_bits);
  });
}

// Copied, since a sockaddr need not be aligned as the type that it stands for.
uint32_t HostOrder4(const sockaddr& address) {
  sockaddr_in own;
  std::memcpy(&own, &address, sizeof(own));
  return ntohl(own.sin_addr.s_addr);
}

in6_addr Address6(const sockaddr& address) {
  sockaddr_in6 own;
  std::memcpy(&own, &address, sizeof(own));
  return own.sin6_addr;
}

}  // namespace

bool IsPublicAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) return IsPublic4(HostOrder4(address));
  if (address.sa_family != AF_INET6) return false;
  const in6_addr own = Address6(address);
  Bytes6 bytes;
  std::memcpy(bytes.data(), &own, bytes.size());
  return IsPublic6(bytes);
}

std::string AddressText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* found = nullptr;
  if (address.sa_family == AF_INET) {
    const in_addr own = {htonl(HostOrder4(address))};
    found = inet_ntop(AF_INET, &own, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    const in6_addr own = Address6(address);
    found = inet_ntop(AF_INET6, &own, text.data(), text.size());
  }
  return found == nullptr ? "an unknown address" : found;
}

}  // namespace minisgl::hub
