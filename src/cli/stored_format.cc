// See stored_format.h.
#include "cli/stored_format.h"

#include <fmt/core.h>

namespace minisgl::cli {

std::string StoredFormat(const ModelConfig& config) {
  const QuantizationConfig& quantization = config.quantization;
  if (quantization.empty()) return DTypeName(config.dtype);
  std::string schemes;
  for (const QuantScheme& scheme : quantization.schemes) {
    schemes += fmt::format("{}{}", schemes.empty() ? "" : "; ", scheme.Name());
  }
  return fmt::format("{}: {}", quantization.method, schemes);
}

}  // namespace minisgl::cli
