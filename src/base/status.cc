#include "minisgl/base/status.h"

namespace minisgl {

int ExitCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kUsage:
      return 64;
    case StatusCode::kBadInput:
      return 65;
    case StatusCode::kNoInput:
      return 66;
    case StatusCode::kUnavailable:
      return 69;
    case StatusCode::kInternal:
      return 70;
    case StatusCode::kCannotCreate:
      return 73;
    case StatusCode::kIoError:
      return 74;
    case StatusCode::kOutOfMemory:
      return 75;
  }
  return 70;
}

}  // namespace minisgl
