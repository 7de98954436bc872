// A place where the threads of several ranks meet, again and again, to exchange a pointer each.
//
// Every rank calls Meet equally often. A rank that has failed calls Fail instead, so that no other
// waits for it forever. All functions may be called from any thread, at most one a rank at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>

namespace minisgl {

// Thrown by Meet on the other ranks after one has failed.
class RankFailed : public std::exception {
 public:
  const char* what() const noexcept override { return "another rank has failed"; }
};

class Rendezvous {
 public:
  // `spins`: a waiting rank polls for some microseconds before it sleeps. Pass false if there are
  // fewer cores than threads.
  Rendezvous(int32_t num_ranks, bool spins);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int32_t num_ranks() const;

  // Waits until every rank has called Meet, and returns the pointers of all. They are valid until
  // this rank calls Meet again. All ranks then see what each wrote before it called Meet. Throws
  // RankFailed.
  std::span<void* const> Meet(int32_t rank, void* pointer);

  // Makes Meet throw on all ranks until Reset, also where it is waiting.
  void Fail() noexcept;
  // Makes the ranks able to meet again after Fail. REQUIRES that no rank is in Meet.
  void Reset() noexcept;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace minisgl
