#include "cli/one_prompt.h"

#include <fmt/core.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "batch/image_reader.h"
#include "batch/input_kind.h"
#include "batch/row_conversation.h"
#include "batch/row_images.h"
#include "batch/run_input.h"
#include "load/image_options.h"
#include "minisgl/base/log.h"

namespace minisgl::cli {
namespace {

// Joins standard input and -p into one text: the document first, the question last.
Result<std::string> PromptText(const batch::RunOptions& options) {
  const bool reads_stdin = !options.no_stdin && isatty(STDIN_FILENO) == 0;
  MINISGL_ASSIGN_OR_RETURN(const std::string prompt,
                           batch::PromptOptionText(options.prompt.value_or(""), options.raw));
  if (!reads_stdin) {
    if (!options.prompt) {
      return UsageError("no prompt; give -p TEXT, --file F, or text on standard input");
    }
    return prompt;
  }
  const bool takes_any_text = options.prompt.has_value() || options.raw;
  const std::function<Status(std::string_view)> check =
      takes_any_text ? nullptr : batch::CheckIsNoRow;
  MINISGL_ASSIGN_OR_RETURN(std::string text,
                           batch::ReadStandardInput(options.prompt.has_value(), check));
  if (!options.prompt) {
    if (!options.raw && text.ends_with('\n')) text.pop_back();
    // Typically a pipe whose first program failed.
    if (text.empty()) {
      return BadInput("standard input is empty: no prompt; give text on it, -p TEXT or --file F");
    }
    return text;
  }
  // If a shell loop reads the same input, this is the only sign that it loses some of it: scripts
  // with --quiet need it most.
  if (!text.empty()) {
    Log(LogLevel::kWarning,
        fmt::format("read {} bytes of standard input before the prompt (--no-stdin skips it)",
                    text.size()));
  }
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  return text + prompt;
}

batch::RowImage PictureOf(const std::string& file) {
  batch::RowImage image = batch::ImageOfUser(file);
  image.field = "--image";
  return image;
}

}  // namespace

Status CheckPictures(const batch::RunOptions& options, const TextModel& text) {
  MINISGL_RETURN_IF_ERROR(load::CheckImageFiles(options.images, text));
  const batch::ImageReader reader(options.image_options, /*folder=*/"");
  for (const std::string& file : options.images) {
    MINISGL_RETURN_IF_ERROR(reader.Take(PictureOf(file), text).status().WithPrefix("--image"));
  }
  return Status();
}

Result<batch::Row> OnePromptRow(const batch::RunOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(std::string text, PromptText(options));
  batch::Row row;
  row.line = 1;
  for (const std::string& file : options.images) {
    row.images.push_back(PictureOf(file));
    row.images.back().message = options.system && !options.raw ? 1 : 0;
  }
  if (options.raw) {
    row.kind = batch::PromptKind::kText;
    row.prompt = std::move(text);
    return row;
  }
  row.kind = batch::PromptKind::kMessages;
  row.messages = batch::ChatMessages(options.system, std::move(text), row.images.size());
  return row;
}

}  // namespace minisgl::cli
