// What prompts of a workload have beside their ids: marks, extras and pictures. By dice of their
// own, so that the plain workload of a seed does not depend on them.
#pragma once

#include <cstdint>

#include "sim/dice.h"
#include "sim/workload.h"

namespace minisgl::sim {

// Returns a length at a page boundary, one token off it, or any.
int64_t DrawLength(Dice* dice, const EngineLimits& limits);

// Pictures at a few places with a few contents each, and adapters: requests with the same ids share
// them all, or differ in some. An engine tells the requests apart by their seeds.
void DrawMarks(Workload* workload);
// Gives what earlier processes kept the marks of some requests.
void DrawKeptMarks(Workload* workload);
// `turn`, whose prompt goes on from the one of `before` up to place `last`, gets its marks.
// If it had marks of its own, there is another picture at its end, or an earlier one has changed.
void ContinueMarks(const Request& before, int64_t last, Request* turn);
// Extras of some requests: embeddings at their pictures, positions of their own behind the first
// one, an adapter's slot, hidden states, and pooled prompts in place of answers.
void DrawExtras(Workload* workload);
// Few of the adapters are loaded at once.
void DrawAdapters(Workload* workload);
// Inputs to encode, one for each mark. The length and the kind of an input follow from its content,
// up to the next mark or to the prompt's last token; a token in its middle may be text.
void DrawPictures(Workload* workload);
// All requests want vectors, of a model whose tokens attend to later ones: none has an answer or is
// of a session.
void DrawWhole(Workload* workload);

}  // namespace minisgl::sim
