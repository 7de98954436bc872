#include "grammar/json_schema/document.h"

#include <algorithm>

#include "grammar/json_schema/keyword_table.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

constexpr size_t kWarningsMax = 100;
constexpr size_t kAmbiguous = SIZE_MAX;  // in place of a resource

struct DraftUri {
  std::string_view uri;
  Draft draft;
};
constexpr DraftUri kDraftUris[] = {
    {"json-schema.org/draft-04/schema", Draft::k4},
    {"json-schema.org/draft-06/schema", Draft::k6},
    {"json-schema.org/draft-07/schema", Draft::k7},
    {"json-schema.org/draft/2019-09/schema", Draft::k2019},
    {"json-schema.org/draft/2020-12/schema", Draft::k2020},
    {"json-schema.org/schema", Draft::k2020},  // "the latest"
};

// False if `uri` names no draft that is known.
bool FindDraft(std::string_view uri, Draft* draft) {
  while (!uri.empty() && uri.back() == '#') uri.remove_suffix(1);
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!uri.starts_with(scheme)) continue;
    for (const DraftUri& known : kDraftUris) {
      if (uri.substr(scheme.size()) != known.uri) continue;
      *draft = known.draft;
      return true;
    }
  }
  return false;
}

// The five parts of a URI, each with its delimiters; the fragment is left out.
struct UriParts {
  explicit UriParts(std::string_view uri) {
    uri = uri.substr(0, uri.find('#'));
    const size_t colon = uri.find_first_of(":/?");
    if (colon != std::string_view::npos && colon > 0 && uri[colon] == ':') {
      scheme = uri.substr(0, colon + 1);
      uri.remove_prefix(colon + 1);
    }
    if (uri.starts_with("//")) {
      const size_t end = std::min(uri.find_first_of("/?", 2), uri.size());
      authority = uri.substr(0, end);
      uri.remove_prefix(end);
    }
    path = uri.substr(0, uri.find('?'));
    query = uri.substr(path.size());
  }
  std::string_view scheme, authority, path, query;
};

std::string RemoveDotSegments(std::string_view path) {
  std::vector<std::string_view> segments;
  bool slash_last = false;
  const bool absolute = path.starts_with('/');
  while (!path.empty()) {
    if (path[0] == '/') path.remove_prefix(1);
    const std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    slash_last = segment.empty() || segment == "." || segment == "..";
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (segment != "." && !(segment.empty() && path.empty())) {
      segments.push_back(segment);
    }
  }
  std::string out;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0 || absolute) out += '/';
    out += segments[i];
  }
  if (slash_last) out += '/';
  return out;
}

std::string PercentDecode(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// One token of a JSON pointer.
std::string UnescapeToken(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

const SchemaValue* FollowToken(const SchemaValue& value, const std::string& token) {
  if (value.is_object()) return value.Find(token);
  if (!value.is_array() || token.empty() || token.size() > 9) return nullptr;
  size_t index = 0;
  for (char c : token) {
    if (c < '0' || c > '9') return nullptr;
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  return index < value.items.size() ? &value.items[index] : nullptr;
}

}  // namespace

const char* DraftName(Draft draft) {
  switch (draft) {
    case Draft::k4:
      return "draft-04";
    case Draft::k6:
      return "draft-06";
    case Draft::k7:
      return "draft-07";
    case Draft::k2019:
      return "2019-09";
    case Draft::k2020:
      break;
  }
  return "2020-12";
}

std::string ResolveUri(std::string_view base, std::string_view reference) {
  const UriParts from(base), to(reference);
  std::string path(to.path);
  std::string_view scheme = to.scheme, authority = to.authority, query = to.query;
  if (scheme.empty()) {
    scheme = from.scheme;
    if (authority.empty()) {
      authority = from.authority;
      if (path.empty()) {
        path = from.path;
        if (query.empty()) query = from.query;
      } else if (path[0] != '/') {
        const size_t slash = from.path.rfind('/');
        const std::string folder(slash == std::string_view::npos ? ""
                                                                 : from.path.substr(0, slash + 1));
        path = folder.empty() && !authority.empty() ? "/" + path : folder + path;
      }
    }
  }
  return fmt::format("{}{}{}{}", scheme, authority, RemoveDotSegments(path), query);
}

Result<SchemaDocument> SchemaDocument::Parse(std::string_view text) {
  SchemaDocument document;
  MINISGL_ASSIGN_OR_RETURN(document.root_, ParseSchemaValue(text));
  const SchemaValue& root = *document.root_;
  if (!root.is_object() && !root.is_bool())
    return BadInput("a schema is an object or a boolean, and this is neither");
  Draft draft = Draft::k2020;
  const SchemaValue* name = root.Find("$schema");
  if (name != nullptr && (!name->is_string() || !FindDraft(name->text, &draft))) {
    return BadInput(
        "#/$schema: unknown draft {}; known are 2020-12, 2019-09, draft-07, draft-06 and draft-04",
        name->is_string() ? "\"" + Visible(name->text) + "\"" : "(not a string)");
  }
  document.AddResource(root, "", draft, name != nullptr);
  MINISGL_RETURN_IF_ERROR(document.Scan(root, 0));
  return document;
}

void SchemaDocument::AddResource(const SchemaValue& schema, std::string uri, Draft draft,
                                 bool names_draft) {
  // Only a reference to an identifier that occurs twice is refused.
  const auto [at, added] = resource_of_uri_.emplace(uri, resources_.size());
  if (!added) at->second = kAmbiguous;
  resource_of_root_[&schema] = resources_.size();
  resources_.push_back({&schema, std::move(uri), draft, names_draft, {}, {}, false});
}

Status SchemaDocument::AddAnchor(const SchemaValue& schema, std::string_view name, bool dynamic,
                                 size_t resource) {
  Resource& in = resources_[resource];
  const auto [at, added] = in.anchors.emplace(std::string(name), &schema);
  if (!added && at->second != &schema)
    return BadInput("{}: the anchor \"{}\" occurs twice", schema.Pointer(), Visible(name));
  if (dynamic) in.dynamic_anchors.emplace(std::string(name), &schema);
  return Status();
}

Status SchemaDocument::ScanId(const SchemaValue& schema, size_t* resource) {
  Draft draft = resources_[*resource].draft;
  bool names_draft = resources_[*resource].names_draft;
  const SchemaValue* id = schema.Find(names_draft && draft == Draft::k4 ? "id" : "$id");
  if (id == nullptr && !names_draft && &schema == root_.get()) id = schema.Find("id");
  if (id == nullptr || !id->is_string()) return Status();
  // Up to draft 7, what stands beside a reference does not count.
  if (draft <= Draft::k7 && schema.Find("$ref") != nullptr) return Status();
  std::string_view uri = id->text;
  if (uri.starts_with('#')) {
    if (uri.size() == 1) return Status();
    return AddAnchor(schema, uri.substr(1), false, *resource);
  }
  const SchemaValue* name = schema.Find("$schema");
  if (&schema != root_.get() && name != nullptr) {
    if (!name->is_string() || !FindDraft(name->text, &draft))
      return BadInput("{}: unknown draft", name->Pointer());
    names_draft = true;
  }
  const std::string resolved = ResolveUri(resources_[*resource].uri, uri);
  if (&schema == root_.get()) {
    resources_[0].uri = resolved;
    resource_of_uri_[resolved] = 0;
    return Status();
  }
  AddResource(schema, resolved, draft, names_draft);
  *resource = resources_.size() - 1;
  const size_t hash = uri.find('#');
  if (hash != std::string_view::npos && hash + 1 < uri.size())
    return AddAnchor(schema, uri.substr(hash + 1), false, *resource);
  return Status();
}

Status SchemaDocument::Scan(const SchemaValue& schema, size_t resource) {
  if (!schema.is_object()) return Status();
  MINISGL_RETURN_IF_ERROR(ScanId(schema, &resource));
  if (const SchemaValue* anchor = schema.Find("$anchor"); anchor && anchor->is_string())
    MINISGL_RETURN_IF_ERROR(AddAnchor(schema, anchor->text, false, resource));
  if (const SchemaValue* anchor = schema.Find("$dynamicAnchor"); anchor && anchor->is_string())
    MINISGL_RETURN_IF_ERROR(AddAnchor(schema, anchor->text, true, resource));
  if (const SchemaValue* anchor = schema.Find("$recursiveAnchor"); anchor && anchor->is_true())
    resources_[resource].recursive_anchor = true;
  for (const SchemaValue::Member& member : schema.members)
    MINISGL_RETURN_IF_ERROR(ScanKeyword(schema, member, resource));
  return Status();
}

Status SchemaDocument::ScanKeyword(const SchemaValue& schema, const SchemaValue::Member& member,
                                   size_t resource) {
  const auto& [name, value] = member;
  Warn(schema, name, resources_[resource].draft, resources_[resource].names_draft);
  const Keyword* keyword = FindKeyword(name);
  if (keyword == nullptr || keyword->shape == KeywordShape::kPlain) return Status();
  if (value.is_object() &&
      (keyword->shape == KeywordShape::kSchema || keyword->shape == KeywordShape::kSchemaOrList)) {
    return Scan(value, resource);
  }
  for (const SchemaValue& item : value.items) MINISGL_RETURN_IF_ERROR(Scan(item, resource));
  if (keyword->shape != KeywordShape::kSchema) {
    for (const SchemaValue::Member& item : value.members)
      MINISGL_RETURN_IF_ERROR(Scan(item.second, resource));
  }
  return Status();
}

void SchemaDocument::Warn(const SchemaValue& schema, const std::string& name, Draft draft,
                          bool names_draft) {
  if (warnings_.size() >= kWarningsMax) return;
  const Keyword* keyword = FindKeyword(name);
  if (keyword != nullptr) {
    if (!names_draft || !keyword->constrains || keyword->since <= draft) return;
    warnings_.push_back(fmt::format("{}: \"{}\" does not constrain in {}; it is of {}",
                                    schema.Pointer(), name, DraftName(draft),
                                    DraftName(keyword->since)));
    return;
  }
  keyword = MisspeltKeyword(name);
  if (keyword == nullptr) return;
  warnings_.push_back(fmt::format("{}: \"{}\" does not constrain; did you mean \"{}\"?",
                                  schema.Pointer(), Visible(name), keyword->name));
}

size_t SchemaDocument::ResourceOf(const SchemaValue& schema) const {
  for (const SchemaValue* at = &schema; at != nullptr; at = at->parent) {
    const auto found = resource_of_root_.find(at);
    if (found != resource_of_root_.end()) return found->second;
  }
  return 0;
}

Draft SchemaDocument::DraftOf(const SchemaValue& schema) const {
  return resources_[ResourceOf(schema)].draft;
}

bool SchemaDocument::NamesDraft(const SchemaValue& schema) const {
  return resources_[ResourceOf(schema)].names_draft;
}

Result<const SchemaValue*> SchemaDocument::Follow(size_t resource, std::string_view fragment,
                                                  std::string_view reference) const {
  const Resource& in = resources_[resource];
  const std::string decoded = PercentDecode(fragment);
  if (!decoded.empty() && decoded[0] != '/') {
    const auto anchor = in.anchors.find(decoded);
    if (anchor != in.anchors.end()) return anchor->second;
    return BadInput("there is no anchor for the reference \"{}\"", Visible(reference));
  }
  const SchemaValue* at = in.root;
  std::string_view rest = decoded;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view token = rest.substr(0, rest.find('/'));
    rest.remove_prefix(token.size());
    at = FollowToken(*at, UnescapeToken(token));
    if (at == nullptr)
      return BadInput("the reference \"{}\" points to nothing", Visible(reference));
  }
  return at;
}

Result<std::pair<size_t, std::string>> SchemaDocument::FindResource(
    const SchemaValue& schema, std::string_view reference) const {
  const size_t hash = std::min(reference.find('#'), reference.size());
  std::string fragment(reference.substr(std::min(hash + 1, reference.size())));
  const size_t here = ResourceOf(schema);
  if (hash == 0) return std::make_pair(here, std::move(fragment));
  const std::string uri = ResolveUri(resources_[here].uri, reference.substr(0, hash));
  const auto found = resource_of_uri_.find(uri);
  if (found != resource_of_uri_.end() && found->second == kAmbiguous)
    return BadInput("the identifier \"{}\" occurs twice", Visible(uri));
  if (found != resource_of_uri_.end()) return std::make_pair(found->second, std::move(fragment));
  return BadInput("the reference \"{}\" leaves the schema; only references inside it are followed",
                  Visible(reference));
}

Result<const SchemaValue*> SchemaDocument::Resolve(const SchemaValue& schema,
                                                   std::string_view reference) const {
  MINISGL_ASSIGN_OR_RETURN(const auto place, FindResource(schema, reference));
  return Follow(place.first, place.second, reference);
}

Result<const SchemaValue*> SchemaDocument::ResolveDynamic(const SchemaValue& schema,
                                                          std::string_view reference) const {
  MINISGL_ASSIGN_OR_RETURN(const auto place, FindResource(schema, reference));
  MINISGL_ASSIGN_OR_RETURN(const SchemaValue* target, Follow(place.first, place.second, reference));
  const Resource& in = resources_[place.first];
  const auto dynamic = in.dynamic_anchors.find(place.second);
  if (dynamic == in.dynamic_anchors.end()) return target;
  for (const Resource& other : resources_) {
    if (&other != &in && other.dynamic_anchors.contains(place.second)) {
      return BadInput("the dynamic reference \"{}\" has several possible targets",
                      Visible(reference));
    }
  }
  return target;
}

Result<const SchemaValue*> SchemaDocument::ResolveRecursive(const SchemaValue& schema) const {
  const size_t here = ResourceOf(schema);
  if (resources_[here].recursive_anchor) {
    for (const Resource& other : resources_) {
      if (&other != &resources_[here] && other.recursive_anchor)
        return BadInput("the recursive reference has several possible targets");
    }
  }
  return resources_[here].root;
}

}  // namespace minisgl::grammar
