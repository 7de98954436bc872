// /adapter: the adapter that the next turns go through. The conversation stays.
#include <fmt/core.h>

#include "chat/chat.h"
#include "load/adapter_choice.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/adapter_names.h"

namespace minisgl::chat {

void Chat::SwitchAdapter(const std::string& arguments) {
  const std::string name = Trimmed(arguments);
  if (name.empty()) return ShowAdapters();
  const AdapterNames* const names = model_.text.adapters.get();
  const bool is_none = name == kNoAdapterName;
  if (!is_none && (names == nullptr || names->Find(name) == nullptr)) {
    failed_ = true;
    return Say(
        names == nullptr
            ? fmt::format("There is no adapter \"{}\": the chat was begun without --adapter.",
                          Visible(name))
            : fmt::format("There is no adapter \"{}\"; there are {}, and none.", Visible(name),
                          names->Text()));
  }
  adapter_ = is_none ? "" : name;
  Note(is_none ? "The model answers without an adapter; the conversation goes on."
               : fmt::format("Answers are {}'s now; the conversation goes on.", Visible(name)));
}

void Chat::ShowAdapters() const {
  const AdapterNames* const names = model_.text.adapters.get();
  if (names == nullptr) return Say("  no adapters (--adapter NAME=DIR)");
  for (const NamedAdapter& adapter : names->list) {
    Say(fmt::format("{} {}: {}", adapter.name == adapter_ ? "*" : " ", Visible(adapter.name),
                    Visible(adapter.dir, 400)));
  }
  if (adapter_.empty()) Say("  (none is chosen)");
}

void Chat::SetAdapter(Prompt* prompt) const {
  const AdapterNames* const names = model_.text.adapters.get();
  if (names == nullptr || adapter_.empty()) return;
  if (const NamedAdapter* const adapter = names->Find(adapter_)) {
    load::SetAdapter(*adapter, prompt);
  }
}

}  // namespace minisgl::chat
