// See adapter_info.h.
#include "cli/adapter_info.h"

#include <fmt/core.h>

#include "cli/gguf_info.h"
#include "load/adapter_choice.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/adapter.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

Status DescribeOne(const std::string& name, const Adapter& adapter, const ModelConfig& config,
                   std::string* out) {
  InfoLine("adapter",
           fmt::format("{}: {}, {}", Visible(name, 200), Visible(adapter.dir, 400),
                       term::FormatBytes(adapter.num_bytes)),
           out);
  InfoLine("  changes", load::ChangesText(adapter), out);
  if (!adapter.base.empty()) InfoLine("  made for", Visible(adapter.base, 400), out);
  InfoLine("  content", HashText(adapter.hash), out);
  const Status fits = load::CheckFits(config, adapter);
  InfoLine("  fits", fits.ok() ? "yes" : "no: " + fits.message(), out);
  if (fits.ok()) {
    const std::string lacked = load::LackedText(config, adapter);
    if (!lacked.empty()) InfoLine("  lacks", lacked, out);
  }
  return fits;
}

}  // namespace

Status DescribeAdapters(const TextModel& text, const ModelConfig& config, std::string* out) {
  Status status;
  const auto describe = [&](const std::string& name, const Adapter& adapter) {
    const Status fits = DescribeOne(name, adapter, config, out);
    if (status.ok()) status = fits;
  };
  if (text.adapters != nullptr) {
    for (const NamedAdapter& adapter : text.adapters->list) describe(adapter.name, *adapter.files);
  }
  if (text.merged_adapter != nullptr) describe("folded in", *text.merged_adapter);
  return status;
}

}  // namespace minisgl::cli
