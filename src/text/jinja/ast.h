// The syntax tree of a template: plain data, built by the parser and read by the interpreter.
//
// A chain of one operator is a flat node, and every other nesting is counted, so the tree is at
// most kTreeDepthMax deep.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace minisgl::text::jinja {

inline constexpr int kTreeDepthMax = 128;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// The arguments of a call, filter or test.
struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional, more_named;  // *list and **dict; may be null
};

// An expression. The comments of Kind name the fields that each kind uses.
struct Expr {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value...
    kAttribute,  // children[0] . name
    kItem,       // children[0] [ children[1] ]
    kSlice,      // children[0] [ children[1] : children[2] : children[3] ], the last 3 may be null
    kCall,       // children[0] ( arguments )
    kFilter,     // children[0] | name ( arguments ); children[0] is null in a filter block
    kTest,       // children[0] is name ( arguments )
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,           // children
    kConcat,       // children
    kArithmetic,   // children[0] ops[0] children[1] ops[1] ..., left to right
    kCompare,      // children[0] ops[0] children[1] and children[1] ops[1] children[2] ...
    kConditional,  // children[0] if children[1] else children[2] (may be null)
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;
  Value value;
  std::string name;
  std::vector<ExprPtr> children;
  std::vector<std::string> ops;
  Arguments arguments;
};

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // if not empty: an attribute of the namespace `name`
  std::vector<Target> tuple;  // if not empty: the targets of a tuple
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  // the default; null: undefined if no argument is given
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;  // the body uses the name
  Block body;
};

// A statement. The comments of Kind name the fields that each kind uses.
struct Statement {
  enum class Kind {
    kData,      // text
    kOutput,    // expr
    kIf,        // branches; the last may have no condition
    kFor,       // target in expr [if condition]: body, else: other
    kSet,       // target = expr
    kSetBlock,  // target = body | expr (a chain of filters, or null)
    kMacro,     // macro
    kCall,      // macro is the caller, expr the call
    kFilter,    // body | expr
    kWith,      // targets = values: body
    kScope,     // body in a scope of its own ({% generation %})
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  int line = 0;
  Text text;
  ExprPtr expr, condition;
  Target target;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body, other;
  bool is_recursive = false;  // the loop can be called
  std::unique_ptr<Macro> macro;
};

}  // namespace minisgl::text::jinja
