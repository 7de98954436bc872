// The identity of a checkpoint's weights: a hash of all bytes of its files.
//
// The hash is stored in the folder of packed weights, beside the stamps of the files (device,
// inode, size and times, of which users cannot set one). Later starts with equal stamps read it
// instead of the files. It is not stored if stamps prove nothing: on file systems that may invent
// times, and for files changed in the last seconds.
#pragma once

#include <string>

#include "minisgl/base/trusted_folder.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl {

// SHA-256 over all bytes of the files of `checkpoint`, independent of their paths, as hexadecimal
// digits; "" for tensors in memory. Computed by `num_threads` threads, unless `folder` has it.
std::string HashWeights(const Checkpoint& checkpoint, const TrustedFolder& folder, int num_threads);

// True if all users may read every file of `checkpoint`. Data derived from it is as private.
bool IsWorldReadable(const Checkpoint& checkpoint);

}  // namespace minisgl
