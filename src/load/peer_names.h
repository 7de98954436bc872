// What options, commands and values of other programs for language models are called here:
// llama-cli, ollama, vLLM, transformers and their like. For errors alone: nothing has a second
// name.
#pragma once

#include <string>
#include <string_view>

#include "load/command_spec.h"

namespace minisgl::load {

// Returns what to do instead of `option`, with its dashes and perhaps "=VALUE", of another program:
// "did you mean --max-tokens?" or a sentence. "" if it is not known, or `spec` lacks the option
// that is meant.
std::string AdviceOnOption(const CommandSpec& spec, std::string_view option);

// The same for a command of another program. `spec`: of the program.
std::string AdviceOnCommand(const CommandSpec& spec, std::string_view command);

// True if `option`, with its dashes and without a value, is one of another program.
bool IsPeerOption(std::string_view option);

// Returns the name here of a value, such as "bf16" for "bfloat16"; "" if none is known.
std::string_view NameOfValue(std::string_view value);

}  // namespace minisgl::load
