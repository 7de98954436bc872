// Fetches a small file of the network whose URL is untrusted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::hub {

struct FetchLimits {
  uint64_t bytes_max = 0;
  // Connects to public addresses alone, whatever the names of hosts and redirects lead to, and uses
  // no proxy, behind which addresses are not seen.
  bool is_public_only = true;
  std::function<bool()> stops;  // called several times a second; true ends the transfer
};

// The bytes at `url`, an http:// or https:// one. A failure that may pass is tried once more; all
// takes two minutes at most. kBadInput: no such file, too large, or an address that is not allowed;
// kUnavailable: no answer, no libcurl, or stopped. Messages begin with the URL. Any thread.
Result<std::string> FetchFile(const std::string& url, const FetchLimits& limits);

}  // namespace minisgl::hub
