// Errors as values: a one-line message that a user can act on, and a code with its exit status.
//
// The program has three kinds of errors:
//   a mistake of the user or in a file: a Status;
//   a failed request: its terminal event (runtime/runtime.h);
//   a bug in the program: a MINISGL_CHECK (base/check.h).
// Messages have the form `FILE:LINE: what is wrong (what was found); what to do`, without control
// characters (quote untrusted text with Visible() of base/utf8.h).
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl {

enum class StatusCode {
  kOk = 0,
  kUsage,         // wrong command line                        -> exit 64
  kBadInput,      // a file or row that breaks its format      -> exit 65
  kNoInput,       // input cannot be opened                    -> exit 66
  kUnavailable,   // the device asked for cannot be used       -> exit 69
  kInternal,      // a fault of the program or the device      -> exit 70
  kCannotCreate,  // output cannot be created                  -> exit 73
  kIoError,       // reading or writing failed                 -> exit 74
  kOutOfMemory,   // does not fit; smaller settings may        -> exit 75
};

// The exit status (sysexits.h) of a command that fails with `code`.
int ExitCode(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with `prefix` (a file name, a place) and ": " put before its message.
  Status WithPrefix(const std::string& prefix) const {
    return ok() ? *this : Status(code_, prefix + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

template <typename... Args>
Status MakeStatus(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status UsageError(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kUsage, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status BadInput(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

// A T, or the Status of the failure to make one. value() REQUIRES ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: conversion is the point
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    MINISGL_CHECK(!status_.ok(), "a Result made of an OK status has no value");
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    MINISGL_CHECK(ok(), "value() of a failed Result: {}", status_.message());
    return *value_;
  }
  const T& value() const& {
    MINISGL_CHECK(ok(), "value() of a failed Result: {}", status_.message());
    return *value_;
  }
  T&& value() && {
    MINISGL_CHECK(ok(), "value() of a failed Result: {}", status_.message());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace minisgl

#define MINISGL_CONCAT_INNER(a, b) a##b
#define MINISGL_CONCAT(a, b) MINISGL_CONCAT_INNER(a, b)

// Returns from the caller with the Status of `expr` unless it is OK.
#define MINISGL_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    ::minisgl::Status minisgl_status_ = (expr);        \
    if (!minisgl_status_.ok()) return minisgl_status_; \
  } while (false)

// Assigns the value of the Result `expr` to `lhs` (a declaration or an lvalue), or returns its
// Status from the caller.
#define MINISGL_ASSIGN_OR_RETURN(lhs, expr) \
  MINISGL_ASSIGN_OR_RETURN_INNER(MINISGL_CONCAT(minisgl_result_, __LINE__), lhs, expr)
#define MINISGL_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                                   \
  if (!result.ok()) return result.status();               \
  lhs = std::move(result).value()
