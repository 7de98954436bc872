#include "hub/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

namespace minisgl::hub {
namespace {

sockaddr_storage AddressOf(const std::string& text) {
  sockaddr_storage storage{};
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    std::memcpy(&storage, &v4, sizeof(v4));
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1) << text;
    v6.sin6_family = AF_INET6;
    std::memcpy(&storage, &v6, sizeof(v6));
  }
  return storage;
}

bool IsPublic(const std::string& text) {
  const sockaddr_storage storage = AddressOf(text);
  const auto& address = reinterpret_cast<const sockaddr&>(storage);
  EXPECT_EQ(AddressText(address), text);
  return IsPublicAddress(address);
}

TEST(PublicAddressTest, AddressesOfTheInternetArePublic) {
  for (const char* text : {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
                           "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0",
                           "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111",
                           "2001:4860:4860::8888", "64:ff9b::101:101", "2002:101:101::1"}) {
    EXPECT_TRUE(IsPublic(text)) << text;
  }
  EXPECT_TRUE(IsPublic("::ffff:1.1.1.1"));
}

TEST(PublicAddressTest, AddressesOfTheMachineAndItsNetworkAreNot) {
  for (const char* text : {"0.0.0.0",
                           "10.0.0.1",
                           "100.64.0.1",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.8",
                           "192.0.2.1",
                           "192.168.1.1",
                           "198.19.0.1",
                           "203.0.113.9",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fc00::1",
                           "fd12:3456::1",
                           "ff02::1",
                           "2001:db8::1",
                           "2001::1",
                           "3fff::1",
                           "64:ff9b:1::1",
                           "64:ff9b::a00:1",
                           "2002:a00:1::1",
                           "::ffff:127.0.0.1",
                           "::ffff:169.254.169.254"}) {
    EXPECT_FALSE(IsPublic(text)) << text;
  }
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  const auto& address = reinterpret_cast<const sockaddr&>(local);
  EXPECT_FALSE(IsPublicAddress(address));
  EXPECT_EQ(AddressText(address), "an unknown address");
}

}  // namespace
}  // namespace minisgl::hub
