// Follows messages, contents and parts through the names of a template.
//
// An expression has a set of kinds. Names hold the kinds of all values that are assigned to them
// anywhere in the template, without regard to scopes and order: the tree is visited again until no
// name gains a kind. So a name may have more kinds than it ever has at one place, which matters
// only if the template then reads the member "text" of it.
#include "text/content_form.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::text {
namespace {

using jinja::Arguments;
using jinja::Block;
using jinja::Expr;
using jinja::ExprPtr;
using jinja::Macro;
using jinja::Statement;

// The kinds that a value may have, as bits.
using Kinds = unsigned;
constexpr Kinds kMessages = 1;  // a list of messages
constexpr Kinds kMessage = 2;
constexpr Kinds kContent = 4;
constexpr Kinds kPart = 8;         // an element of a content
constexpr Kinds kAsksString = 16;  // whether a content or a part is a string

// Upper bound on visits of the tree. Templates of models need two or three; of a chain of more
// names, the last ones are not followed.
constexpr int kVisitsMax = 8;

// Filters whose result has elements of their input.
constexpr std::string_view kSelecting[] = {"selectattr", "rejectattr", "select", "reject",  "list",
                                           "reverse",    "sort",       "unique", "default", "d"};

template <size_t kCount>
bool IsOneOf(std::string_view name, const std::string_view (&names)[kCount]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The text of a constant expression; "" for any other.
std::string_view ConstantText(const ExprPtr& expr) {
  const bool is_text =
      expr != nullptr && expr->kind == Expr::Kind::kConstant && expr->value.is_text();
  return is_text ? std::string_view(expr->value.text().bytes()) : std::string_view();
}

// The kinds of the elements of a value.
Kinds Elements(Kinds kinds) {
  return ((kinds & kMessages) != 0 ? kMessage : 0) | ((kinds & kContent) != 0 ? kPart : 0);
}

class FormFinder {
 public:
  explicit FormFinder(const Block& block) {
    names_["messages"] = kMessages;
    for (int visit = 0; visit < kVisitsMax && changed_; ++visit) {
      changed_ = reads_parts_ = false;
      Visit(block);
    }
  }

  bool reads_parts() const { return reads_parts_; }

 private:
  void Visit(const Block& block) {
    for (const auto& statement : block) Visit(*statement);
  }

  // Visits a part of the template that is reached only after a question with the kinds `asked`.
  template <typename Part>
  void VisitAfter(Kinds asked, const Part& part) {
    const bool is_guarded = (asked & kAsksString) != 0;
    num_guards_ += is_guarded ? 1 : 0;
    Visit(part);
    num_guards_ -= is_guarded ? 1 : 0;
  }

  void Visit(const Statement& statement) {
    using Kind = Statement::Kind;
    switch (statement.kind) {
      case Kind::kIf: {
        Kinds asked = 0;
        for (const auto& [condition, body] : statement.branches) {
          asked |= Visit(condition);
          VisitAfter(asked, body);
        }
        break;
      }
      case Kind::kFor: {
        Bind(statement.target, Elements(Visit(statement.expr)));
        VisitAfter(Visit(statement.condition), statement.body);
        Visit(statement.other);
        break;
      }
      case Kind::kSet:
        Bind(statement.target, Visit(statement.expr));
        if (statement.expr->kind == Expr::Kind::kCall) {
          BindMembers(statement.target.name, statement.expr->arguments);
        }
        break;
      case Kind::kMacro:
      case Kind::kCall:
        macros_.insert_or_assign(statement.macro->name, statement.macro.get());
        for (const jinja::Parameter& parameter : statement.macro->parameters) {
          Visit(parameter.fallback);
        }
        Visit(statement.expr);
        Visit(statement.macro->body);
        break;
      case Kind::kWith:
        for (const auto& [target, value] : statement.bindings) Bind(target, Visit(value));
        Visit(statement.body);
        break;
      default:
        Visit(statement.expr);
        Visit(statement.body);
    }
  }

  Kinds Visit(const ExprPtr& expr) { return expr == nullptr ? 0U : Visit(*expr); }

  Kinds Visit(const Expr& expr) {
    using Kind = Expr::Kind;
    switch (expr.kind) {
      case Kind::kName:
        return KindsOf(expr.name);
      case Kind::kAttribute: {
        const Kinds own = Member(Visit(expr.children[0]), expr.name);
        const bool of_name = expr.children[0]->kind == Kind::kName;
        return own | (of_name ? KindsOf(expr.children[0]->name + "." + expr.name) : 0U);
      }
      case Kind::kItem: {
        const Kinds kinds = Visit(expr.children[0]);
        Visit(expr.children[1]);
        const std::string_view key = ConstantText(expr.children[1]);
        return key.empty() ? Elements(kinds) : Member(kinds, key);
      }
      case Kind::kSlice:
        return VisitAll(expr) & (kMessages | kContent);
      case Kind::kList:
        return (VisitAll(expr) & kMessage) != 0 ? kMessages : 0U;
      case Kind::kCall:
        return VisitCall(expr);
      case Kind::kFilter:
        return VisitFilter(expr);
      case Kind::kTest: {
        const Kinds kinds = Visit(expr.children[0]);
        VisitAll(expr.arguments);
        const bool asks = (expr.name == "string" && (kinds & (kContent | kPart)) != 0) ||
                          (expr.name == "mapping" && (kinds & kPart) != 0);
        return asks ? kAsksString : 0U;
      }
      case Kind::kAnd:
      case Kind::kOr:
        return VisitChain(expr);
      case Kind::kConditional: {
        const Kinds asked = Visit(expr.children[1]);
        num_guards_ += (asked & kAsksString) != 0 ? 1 : 0;
        const Kinds kinds = Visit(expr.children[0]) | Visit(expr.children[2]);
        num_guards_ -= (asked & kAsksString) != 0 ? 1 : 0;
        return kinds;
      }
      case Kind::kNot:
      case Kind::kCompare:
        return VisitAll(expr) & kAsksString;
      case Kind::kArithmetic:
        return VisitAll(expr) & kMessages;
      default:
        VisitAll(expr);
        VisitAll(expr.arguments);
        return 0;
    }
  }

  // Visits the operands of `and` and `or`, each guarded by the operands before it.
  Kinds VisitChain(const Expr& expr) {
    Kinds all = 0;
    int num_guards = 0;
    for (const ExprPtr& child : expr.children) {
      const Kinds kinds = Visit(child);
      all |= kinds;
      num_guards += (kinds & kAsksString) != 0 ? 1 : 0;
      num_guards_ += (kinds & kAsksString) != 0 ? 1 : 0;
    }
    num_guards_ -= num_guards;
    return all;
  }

  Kinds VisitAll(const Expr& expr) {
    Kinds all = 0;
    for (const ExprPtr& child : expr.children) all |= Visit(child);
    return all;
  }

  void VisitAll(const Arguments& arguments) {
    for (const ExprPtr& argument : arguments.positional) Visit(argument);
    for (const auto& [name, argument] : arguments.named) Visit(argument);
    Visit(arguments.more_positional);
    Visit(arguments.more_named);
  }

  // A call of a macro passes kinds to its parameters; message.get('content') reads a member. Each
  // argument is visited once: calls nest.
  Kinds VisitCall(const Expr& expr) {
    const Expr& callee = *expr.children[0];
    const Arguments& arguments = expr.arguments;
    const bool is_method = callee.kind == Expr::Kind::kAttribute;
    const Kinds kinds = Visit(is_method ? callee.children[0] : expr.children[0]);
    const auto found = macros_.find(callee.kind == Expr::Kind::kName ? callee.name : "");
    const Macro* const macro = found == macros_.end() ? nullptr : found->second;
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      const Kinds argument = Visit(arguments.positional[i]);
      if (macro != nullptr && i < macro->parameters.size()) {
        Bind(macro->parameters[i].name, argument);
      }
    }
    for (const auto& [name, value] : arguments.named) {
      const Kinds argument = Visit(value);
      if (macro != nullptr) Bind(name, argument);
    }
    Visit(arguments.more_positional);
    Visit(arguments.more_named);
    const bool is_get = is_method && callee.name == "get" && !arguments.positional.empty();
    return is_get ? Member(kinds, ConstantText(arguments.positional[0])) : 0U;
  }

  Kinds VisitFilter(const Expr& expr) {
    const Kinds kinds = Visit(expr.children[0]);
    const Arguments& arguments = expr.arguments;
    VisitAll(arguments);
    if (IsOneOf(expr.name, kSelecting)) return kinds;
    if (expr.name == "first" || expr.name == "last" || expr.name == "random") {
      return Elements(kinds);
    }
    // map(attribute='text'), join(' ', attribute='text'), attr('text').
    if (expr.name == "attr" && !arguments.positional.empty()) {
      return Member(kinds, ConstantText(arguments.positional[0]));
    }
    for (const auto& [name, argument] : arguments.named) {
      if (name == "attribute") Member(Elements(kinds), ConstantText(argument));
    }
    return 0;
  }

  // Returns the kinds of the member `name` of a value.
  Kinds Member(Kinds kinds, std::string_view name) {
    if (name == "text" && (kinds & kPart) != 0 && num_guards_ == 0) reads_parts_ = true;
    return name == "content" && (kinds & kMessage) != 0 ? kContent : 0U;
  }

  Kinds KindsOf(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? 0U : found->second;
  }

  void Bind(const jinja::Target& target, Kinds kinds) {
    if (!target.tuple.empty()) return;
    Bind(target.attribute.empty() ? target.name : target.name + "." + target.attribute, kinds);
  }

  void Bind(const std::string& name, Kinds kinds) {
    if (kinds == 0) return;
    Kinds& known = names_[name];
    changed_ = changed_ || (known | kinds) != known;
    known |= kinds;
  }

  // The members of {% set name = namespace(member=value) %}.
  void BindMembers(const std::string& name, const Arguments& arguments) {
    for (const auto& [member, value] : arguments.named) Bind(name + "." + member, Visit(value));
  }

  std::map<std::string, Kinds> names_;
  std::map<std::string, const Macro*> macros_;
  int num_guards_ = 0;  // questions whether the content is a string, before the current place
  bool changed_ = true;
  bool reads_parts_ = false;
};

}  // namespace

ContentForm FindContentForm(const jinja::Block& block) {
  return FormFinder(block).reads_parts() ? ContentForm::kParts : ContentForm::kString;
}

}  // namespace minisgl::text
