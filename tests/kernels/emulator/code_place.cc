// Asks addr2line, a tool of the compiler's.
#include "emulator/code_place.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace minisgl::cuda::emulator {
namespace {

// The lines that a command prints.
std::vector<std::string> LinesOf(const std::string& command) {
  std::vector<std::string> lines;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else {
      lines.push_back(std::exchange(line, {}));
    }
  }
  pclose(pipe);
  return lines;
}

std::string Find(uintptr_t address) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(address), &info) == 0) return {};
  // Position-independent executables are loaded somewhere; others have absolute addresses.
  const uintptr_t base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  const uintptr_t offset = base < 0x10000000 ? address : address - base;
  // For each function, inlined ones first: a line with its name, and one with file:line.
  const std::vector<std::string> lines = LinesOf(
      fmt::format("addr2line -f -C -i -e /proc/{}/exe {:#x} 2>/dev/null", getpid(), offset - 1));
  if (lines.size() < 2 || lines[1].starts_with("?")) return {};
  std::string function = lines[lines.size() - 2];
  for (const char* const part : {"(anonymous namespace)::", "minisgl::cuda::", "void "}) {
    for (size_t at; (at = function.find(part)) != std::string::npos;) {
      function.erase(at, std::strlen(part));
    }
  }
  const std::string place = lines[1].substr(lines[1].rfind('/') + 1);
  return fmt::format("{} at {}", function.substr(0, function.find('(')),
                     place.substr(0, place.find(' ')));
}

}  // namespace

std::string CodePlace(const void* code) {
  static std::map<uintptr_t, std::string> found;
  const uintptr_t address = reinterpret_cast<uintptr_t>(code);
  const auto [entry, is_new] = found.try_emplace(address);
  if (is_new) entry->second = Find(address);
  return entry->second;
}

}  // namespace minisgl::cuda::emulator
