// What /help NAME says of a command beyond its line in the list of /help.
#pragma once

#include <string>
#include <string_view>

namespace minisgl::chat {

// Lines without a break at the end; "" if the line of the list says it all.
std::string MoreHelp(std::string_view command);

// The lines that end the list of all commands.
std::string_view HelpOnInput();

}  // namespace minisgl::chat
