// Reading whole inputs that may be pipes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::term {

// Reads all bytes of `fd`, at most `bytes_max`; a closed one counts as empty. If nothing arrives
// for a second, this is logged once, with `hint` at the end. `name`: of `fd`, for messages.
// `check_first_line` gets the first line that is not blank, as soon as it is there, and its error
// ends the reading; empty: nothing is checked.
Result<std::string> ReadAll(int fd, const std::string& name, size_t bytes_max,
                            const char* hint = "",
                            const std::function<Status(std::string_view)>& check_first_line = {});

// The contents of a file, which may be a pipe or a device. Errors name it.
Result<std::string> ReadFileOrPipe(const std::string& path, size_t bytes_max);

}  // namespace minisgl::term
