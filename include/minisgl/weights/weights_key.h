// What tells one checkpoint's packed weights from another's: a hash of all bytes of its files.
//
// The hash of files that are as they were (device, inode, size and times, one of which no user can
// set) is remembered in the folder of packed weights, so that later starts read it instead of the
// files. It is not where those are no proof: on file systems that may make the times up, and for
// files that were changed in the last seconds.
#pragma once

#include <string>

#include "minisgl/base/trusted_folder.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {

// SHA-256 over all bytes of the files of `checkpoint`, wherever they lie, as hexadecimal digits; ""
// for tensors in memory. Computed by `num_threads` threads unless `folder` remembers it.
std::string HashWeights(const Checkpoint& checkpoint, const TrustedFolder& folder, int num_threads);

// Whether everybody may read all files of `checkpoint`. What is made of them is as private.
bool EverybodyMayRead(const Checkpoint& checkpoint);

}  // namespace minisgl
