// See minisgl/text/adapter_names.h.
#include "minisgl/text/adapter_names.h"

#include "minisgl/base/utf8.h"

namespace minisgl {

std::string AdapterNames::Text() const {
  constexpr size_t kShownMax = 20;
  std::string text;
  for (size_t i = 0; i < list.size() && i < kShownMax; ++i) {
    if (i > 0) text += ", ";
    text += Visible(list[i].name);
  }
  return list.size() > kShownMax ? text + ", ..." : text;
}

}  // namespace minisgl
