// Converts the exceptions of templates to a Status.
#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "minisgl/base/status.h"
#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"

namespace minisgl::text::jinja {

// Calls `body` and converts exceptions to a Status that names `name` and the template's line.
// `what`: "the chat template".
template <typename Body>
Status Guard(const std::string& name, const char* what, Body body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return BadInput("{}:{}: {}", name, std::max(1, error.line()), error.what());
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory, "{}: no memory for {}", name, what);
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "{}: {} fails ({})", name, what,
                      Visible(error.what()));
  }
}

}  // namespace minisgl::text::jinja
