// What config.json and the files of encoders have beside the keys and names of decoders.
#pragma once

#include "minisgl/base/json.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "weights/architecture_table.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// Sets what is common to all encoders, and the usual prefix of `entry`.
void BecomeEncoder(const Architecture& entry, ModelConfig* config);

// Sets how the files of `checkpoint` name the tensors of the encoder `entry`.
void FindEncoderNames(const Checkpoint& checkpoint, const Architecture& entry, ModelConfig* config);

// Architecture::read of the families. RoBERTa's tables of positions begin behind the row of the
// padding's id.
void ReadBert(FieldReader* reader, ModelConfig* config);
void ReadJinaBert(FieldReader* reader, ModelConfig* config);
void ReadRoberta(FieldReader* reader, ModelConfig* config);
void ReadDistilBert(FieldReader* reader, ModelConfig* config);
void ReadMpnet(FieldReader* reader, ModelConfig* config);
void ReadNomicBert(FieldReader* reader, ModelConfig* config);
void ReadModernBert(FieldReader* reader, ModelConfig* config);

// Architecture::rename: the keys of DistilBERT, of GPT-2, and those of ModernBERT before
// transformers 5.
void RenameDistilBert(Json* config);
void RenameNomicBert(Json* config);
void RenameModernBert(Json* config);

}  // namespace minisgl::weights
