// Any bytes as a JPEG picture.
#include "fuzz/picture_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  minisgl::CheckPicture({reinterpret_cast<const char*>(data), size});
  return 0;
}
