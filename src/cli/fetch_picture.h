// Fetches the pictures of rows and chats from the network, for load::ImageOptions::fetch.
#pragma once

#include <cstdint>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::cli {

// The file at `url`, of at most `bytes_max` bytes. A signal to stop ends the transfer. The errors
// of hub::FetchFile. Any thread.
Result<std::string> FetchPicture(const std::string& url, uint64_t bytes_max, bool is_public_only);

}  // namespace minisgl::cli
