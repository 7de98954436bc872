// A schema as a document: which draft holds where, and what references mean.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema/value.h"
#include "minisgl/base/status.h"

namespace minisgl::grammar {

enum class Draft { k4, k6, k7, k2019, k2020 };

const char* DraftName(Draft draft);

class SchemaDocument {
 public:
  // kBadInput for text that is not JSON, a root that is neither an object nor a boolean, drafts
  // that are not known, anchors that occur twice.
  static Result<SchemaDocument> Parse(std::string_view text);

  const SchemaValue& root() const { return *root_; }
  Draft DraftOf(const SchemaValue& schema) const;
  // True if the document has `$schema`, so that names of later drafts do not constrain.
  bool NamesDraft(const SchemaValue& schema) const;

  // The schema that `reference`, found in `schema`, refers to.
  Result<const SchemaValue*> Resolve(const SchemaValue& schema, std::string_view reference) const;
  // The same for $dynamicRef and $recursiveRef: kBadInput if its target depends on the way there.
  Result<const SchemaValue*> ResolveDynamic(const SchemaValue& schema,
                                            std::string_view reference) const;
  Result<const SchemaValue*> ResolveRecursive(const SchemaValue& schema) const;

  // Names close to a keyword, keywords of later drafts: one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Resource {
    const SchemaValue* root;
    std::string uri;
    Draft draft;
    bool names_draft;
    std::map<std::string, const SchemaValue*, std::less<>> anchors;
    std::map<std::string, const SchemaValue*, std::less<>> dynamic_anchors;
    bool recursive_anchor = false;
  };

  Status Scan(const SchemaValue& schema, size_t resource);
  Status ScanKeyword(const SchemaValue& schema, const SchemaValue::Member& member, size_t resource);
  Status ScanId(const SchemaValue& schema, size_t* resource);
  void AddResource(const SchemaValue& schema, std::string uri, Draft draft, bool names_draft);
  Status AddAnchor(const SchemaValue& schema, std::string_view name, bool dynamic, size_t resource);
  void Warn(const SchemaValue& schema, const std::string& name, Draft draft, bool names_draft);
  size_t ResourceOf(const SchemaValue& schema) const;
  Result<const SchemaValue*> Follow(size_t resource, std::string_view fragment,
                                    std::string_view reference) const;
  Result<std::pair<size_t, std::string>> FindResource(const SchemaValue& schema,
                                                      std::string_view reference) const;

  std::unique_ptr<const SchemaValue> root_;
  std::vector<Resource> resources_;
  std::map<const SchemaValue*, size_t> resource_of_root_;
  std::map<std::string, size_t, std::less<>> resource_of_uri_;
  std::vector<std::string> warnings_;
};

// Resolves `reference` against `base` as RFC 3986 does (section 5.2), fragments left out.
std::string ResolveUri(std::string_view base, std::string_view reference);

}  // namespace minisgl::grammar
