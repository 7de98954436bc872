// Which addresses belong to the public internet: a URL of a stranger must not reach the machine
// itself or its network.
#pragma once

#include <string>

struct sockaddr;

namespace minisgl::hub {

// True if `address`, of IPv4 or IPv6, is none of the loopback, of private and link-local networks,
// of multicast, and of the ranges that are reserved (the special-purpose registries of RFC 6890).
// An IPv6 address that stands for one of IPv4 is public if that one is. False for other families.
bool IsPublicAddress(const sockaddr& address);

// The address as text, for messages: "192.168.0.1". "an unknown address" for other families.
std::string AddressText(const sockaddr& address);

}  // namespace minisgl::hub
