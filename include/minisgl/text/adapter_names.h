// The adapters of a model by the names that rows give.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/prefix_key.h"
#include "minisgl/plan/adapter_slot.h"

namespace minisgl {

struct Adapter;

struct NamedAdapter {
  std::string name;
  std::string dir;
  ContentHash hash{};
  AdapterSlot slot = kNoAdapter;         // equal adapters have the same one
  std::shared_ptr<const Adapter> files;  // not null
};

struct AdapterNames {
  std::vector<NamedAdapter> list;       // sorted by name
  std::string default_name;             // of rows that name none; "": the base answers
  std::vector<std::string> base_names;  // by which rows may call the model without an adapter

  // Null if there is none of this name.
  const NamedAdapter* Find(std::string_view name) const {
    for (const NamedAdapter& adapter : list) {
      if (adapter.name == name) return &adapter;
    }
    return nullptr;
  }
  // "a, b, c", cut if there are many.
  std::string Text() const;
};

// The name that asks for the model without an adapter.
inline constexpr std::string_view kNoAdapterName = "none";

}  // namespace minisgl
