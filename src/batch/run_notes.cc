#include "batch/run_notes.h"

namespace minisgl::batch {

void RunNotes::Say(const std::vector<RunNote>& notes) {
  for (const RunNote& note : notes) {
    {
      const std::lock_guard lock(mutex_);
      if (!said_.insert(note.text).second) continue;
    }
    Log(note.level, note.text);
  }
}

}  // namespace minisgl::batch
