#include "cli/fetch_picture.h"

#include "hub/fetch_file.h"
#include "term/signals.h"

namespace minisgl::cli {

Result<std::string> FetchPicture(const std::string& url, uint64_t bytes_max, bool is_public_only) {
  return hub::FetchFile(url, {.bytes_max = bytes_max,
                              .is_public_only = is_public_only,
                              .stops = [] { return term::StopSignal() != 0; }});
}

}  // namespace minisgl::cli
