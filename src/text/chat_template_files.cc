// Finds the chat templates of a model directory and selects one.
//
// Sources in order of precedence (the first two as in the transformers library):
//   1. chat_template.jinja and additional_chat_templates/NAME.jinja
//   2. chat_template of tokenizer_config.json
//   3. chat_template.json, written by older processors
// A GGUF file has its own.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "minisgl/base/file_kind.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/chat_template.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_config.h"

namespace minisgl::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTemplatesMax = 64;  // per model; real models have at most four
constexpr const char* kDefault = "default";
constexpr const char* kForTools = "tool_use";

// The location of a template: the file `origin`, or `source` if it is part of a configuration.
struct Place {
  std::string origin;
  std::optional<std::string> source;
};
using Places = std::map<std::string, Place>;

Status AddPlace(const std::string& name, Place place, const std::string& file, Places* places) {
  places->insert_or_assign(name, std::move(place));
  if (places->size() > kTemplatesMax) {
    return BadInput("{}: more than {} chat templates", Visible(file, 400), kTemplatesMax);
  }
  return {};
}

Result<Places> JinjaFiles(const fs::path& dir) {
  Places places;
  const fs::path single = dir / "chat_template.jinja";
  if (IsListed(single.string())) places[kDefault] = {single.string(), std::nullopt};
  const fs::path folder = dir / "additional_chat_templates";
  MINISGL_RETURN_IF_ERROR(CheckLink(folder.string()));
  for (const std::string& name : NamesIn(folder.string())) {
    const fs::path path = folder / name;
    if (path.extension() != ".jinja") continue;
    MINISGL_RETURN_IF_ERROR(CheckLink(path.string()));
    MINISGL_RETURN_IF_ERROR(
        AddPlace(path.stem().string(), {path.string(), std::nullopt}, folder.string(), &places));
  }
  return places;
}

// Reads chat_template of a configuration: a string, or [{"name": ..., "template": ...}, ...].
Result<Places> Configured(const std::string& dir, const char* file) {
  Places places;
  const std::string path = (fs::path(dir) / file).string();
  MINISGL_ASSIGN_OR_RETURN(const Json config, LoadJsonObject(dir, file));
  const Json* found = config.Find("chat_template");
  if (found == nullptr || found->is_null()) return places;
  const std::string origin = path + " (chat_template)";
  if (found->is_string()) {
    places[kDefault] = {origin, found->as_string()};
    return places;
  }
  if (!found->is_array()) {
    return BadInput("{}: \"chat_template\" is {}; it must be a string or an array of named ones",
                    Visible(path, 400), found->TypeName());
  }
  for (const Json& entry : found->as_array()) {
    const Json *name = entry.Find("name"), *text = entry.Find("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
      return BadInput("{}: an entry of \"chat_template\" has no name or no template",
                      Visible(path, 400));
    }
    MINISGL_RETURN_IF_ERROR(
        AddPlace(name->as_string(), {origin, text->as_string()}, path, &places));
  }
  return places;
}

Result<Places> TemplatesInGguf(const std::string& path) {
  Places places;
  MINISGL_ASSIGN_OR_RETURN(const auto sources, LoadGgufTemplates(path));
  for (const auto& [name, source] : sources) {
    MINISGL_RETURN_IF_ERROR(
        AddPlace(name, {path + " (tokenizer.chat_template)", source}, path, &places));
  }
  return places;
}

Result<Places> FindTemplates(const std::string& dir) {
  if (IsGgufFile(dir)) return TemplatesInGguf(dir);
  // A dangling link is an error: the model's own template must not be silently replaced by another.
  for (const char* file : {"chat_template.jinja", "chat_template.json"}) {
    MINISGL_RETURN_IF_ERROR(CheckLink((fs::path(dir) / file).string()));
  }
  MINISGL_ASSIGN_OR_RETURN(Places places, JinjaFiles(dir));
  if (!places.empty()) return places;
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    MINISGL_ASSIGN_OR_RETURN(places, Configured(dir, file));
    if (!places.empty()) return places;
  }
  return places;
}

Result<std::unique_ptr<ChatTemplate>> ParsePlace(const Place& place) {
  if (place.source.has_value()) return ChatTemplate::Parse(*place.source, place.origin);
  MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(place.origin, kTemplateBytesMax));
  // Any text parses as a template, even a Git LFS pointer or an HTML page.
  if (const std::optional<FileKind> kind = KindOfFile(text)) {
    return BadInput("{}: is {}, not a template; {}", Visible(place.origin, 400), kind->name,
                    kind->advice);
  }
  return ChatTemplate::Parse(text, place.origin);
}

std::string Names(const Places& places) {
  std::vector<std::string> names;
  for (const auto& [name, place] : places) names.push_back(Visible(name));
  return fmt::format("{}", fmt::join(names, ", "));
}

// A pair of templates: `tools` is used if the conversation has tools, otherwise `plain`.
class WithTools : public ChatTemplate {
 public:
  WithTools(std::unique_ptr<ChatTemplate> plain, std::unique_ptr<ChatTemplate> tools)
      : plain_(std::move(plain)), tools_(std::move(tools)) {}

  Result<std::vector<TextPiece>> Render(const ChatInput& input) const override {
    return (input.tools.is_null() ? plain_ : tools_)->Render(input);
  }
  bool Reads(std::string_view variable) const override {
    return plain_->Reads(variable) || tools_->Reads(variable);
  }
  bool SourceContains(std::string_view text) const override {
    return plain_->SourceContains(text) || tools_->SourceContains(text);
  }
  ArgumentsForm arguments_form(bool with_tools) const override {
    return (with_tools ? tools_ : plain_)->arguments_form(with_tools);
  }

 private:
  ContentForm OwnContentForm(bool with_tools) const override {
    return (with_tools ? tools_ : plain_)->content_form();
  }
  bool OwnTakesParts(std::string_view role, bool with_tools) const override {
    return (with_tools ? tools_ : plain_)->TakesParts(role);
  }

  std::unique_ptr<ChatTemplate> plain_, tools_;
};

}  // namespace
}  // namespace minisgl::text

namespace minisgl {

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  MINISGL_ASSIGN_OR_RETURN(const text::Places places, text::FindTemplates(model_dir));
  if (places.empty()) return std::unique_ptr<ChatTemplate>();
  const auto plain = places.find(text::kDefault), tools = places.find(text::kForTools);
  if (plain == places.end()) {
    return BadInput("{}: none of its chat templates ({}) is named \"default\"; choose one with {}",
                    Visible(model_dir, 400), text::Names(places),
                    SettingName(Setting::kChatTemplate));
  }
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> chat, text::ParsePlace(plain->second));
  if (tools == places.end()) return chat;
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> with_tools,
                           text::ParsePlace(tools->second));
  return std::unique_ptr<ChatTemplate>(
      std::make_unique<text::WithTools>(std::move(chat), std::move(with_tools)));
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::LoadNamed(const std::string& model_dir,
                                                              const std::string& name) {
  MINISGL_ASSIGN_OR_RETURN(const text::Places places, text::FindTemplates(model_dir));
  const auto found = places.find(name);
  if (found != places.end()) return text::ParsePlace(found->second);
  return MakeStatus(StatusCode::kNoInput, "{}: no chat template is named \"{}\" (available: {})",
                    Visible(model_dir, 400), Visible(name),
                    places.empty() ? "none" : text::Names(places));
}

}  // namespace minisgl
