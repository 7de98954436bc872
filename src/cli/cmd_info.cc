// minisgl info: shows what a model directory contains, on which device it would run, and how memory
// would be used. Reads only headers.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "batch/row_prompt.h"
#include "cli/adapter_info.h"
#include "cli/commands.h"
#include "cli/gguf_info.h"
#include "cli/info_plan.h"
#include "cli/stored_format.h"
#include "cli/vector_setup.h"
#include "load/adapter_choice.h"
#include "load/model_loader.h"
#include "load/tower_choice.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/tool_calls.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/find_model_dir.h"
#include "minisgl/weights/prediction_layer.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"
#include "term/wrapped_text.h"
#include "weights/architectures.h"
#include "weights/stored_names.h"

namespace minisgl::cli {
namespace {

struct InfoOptions {
  load::ModelOptions model;
  std::string named;  // in place of --model; "" means none
  std::string shape;  // a config.json; "" means none
  bool shows_config = false;
  load::EngineOptions engine;
};

// The parameters of the model. A quantized matrix has as many as the dense one.
double CountParameters(const std::vector<weights::RequiredTensor>& required) {
  double parameters = 0;
  for (const weights::RequiredTensor& tensor : required) {
    double count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<double>(size);
    parameters += count;
  }
  return parameters;
}

// Describes how many layers have which attention window.
void DescribeWindows(const ModelConfig& config, std::string* out) {
  std::map<int32_t, int> counts;
  for (const LayerConfig& layer : config.layers) {
    if (HasAttention(layer.mixer)) ++counts[layer.sliding_window];
  }
  if (counts.size() == 1 && counts.begin()->first == 0) return;
  std::string text;
  for (const auto& [window, count] : counts) {
    if (!text.empty()) text += ", ";
    text += window == 0 ? fmt::format("{} layers over all tokens", count)
                        : fmt::format("{} layers over the last {} tokens", count, window);
  }
  InfoLine("attention", text, out);
}

// Sizes of attention that differ from layer to layer, and layers without keys of their own.
void DescribeLayerShapes(const ModelConfig& config, std::string* out) {
  if (HasUniformAttention(config)) return;
  std::vector<std::pair<LayerShape, int32_t>> counts;
  int32_t num_sharing = 0;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    LayerShape shape = LayerShapeOf(config, i);
    shape.intermediate_size = 0;
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& one) { return one.first == shape; });
    if (found == counts.end()) {
      counts.emplace_back(shape, 1);
    } else {
      ++found->second;
    }
    num_sharing += config.layers[static_cast<size_t>(i)].kv_layer >= 0 ? 1 : 0;
  }
  std::string text;
  for (const auto& [shape, count] : counts) {
    text += fmt::format("{}{} with {} query and {} KV heads of {}", text.empty() ? "" : ", ", count,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim);
  }
  if (num_sharing > 0) text += fmt::format("; {} read the keys of others", num_sharing);
  InfoLine("heads", text, out);
}

// Layers that have a state in place of keys and values.
void DescribeStates(const ModelConfig& config, std::string* out) {
  const auto count = [&](Mixer mixer) {
    return std::count_if(config.layers.begin(), config.layers.end(),
                         [&](const LayerConfig& layer) { return layer.mixer == mixer; });
  };
  const StateConfig& states = config.states;
  const std::string heads =
      fmt::format("{} heads of {} x {}", states.num_heads, states.key_dim, states.value_dim);
  if (const auto layers = count(Mixer::kShortConv); layers > 0) {
    InfoLine("states",
             fmt::format("{} layers with convolutions of {} tokens", layers, states.conv_length),
             out);
  } else if (const auto deltas = count(Mixer::kDeltaNet); deltas > 0) {
    InfoLine("states", fmt::format("{} Gated DeltaNet layers, {}", deltas, heads), out);
  } else if (const auto both = count(Mixer::kAttentionAndMamba2); both > 0) {
    InfoLine("states", fmt::format("{} layers with attention and Mamba-2, {}", both, heads), out);
  } else if (const auto mambas = count(Mixer::kMamba2); mambas > 0) {
    InfoLine("states", fmt::format("{} Mamba-2 layers, {}", mambas, heads), out);
  }
}

// Whether pictures are read, or why not; nothing for a model that is for text.
void DescribeImages(const TextModel& text, const load::ModelFacts& facts, std::string* out) {
  if (facts.config.wrapper.empty() && text.projector.empty()) return;
  const Status& why_not = text.images ? facts.no_images : text.images_status;
  const bool are_read = text.images && facts.models.tower() != nullptr;
  InfoLine("images", are_read ? "yes" : fmt::format("no: {}", why_not.message()), out);
}

void DescribeModel(const std::string& source, const ModelConfig& config, std::string* out) {
  InfoLine("model", Visible(source, 400), out);
  std::string architecture = config.architecture;
  if (config.wrapper == config.architecture) {
    architecture += ", its text model";
  } else if (!config.wrapper.empty()) {
    architecture += fmt::format(", the text model of {}", config.wrapper);
  }
  InfoLine("architecture", architecture, out);
  const LatentConfig& latent = config.latent;
  const std::string heads = latent.rank > 0
                                ? fmt::format("{} query heads of {}", config.num_heads,
                                              latent.plain_dim + latent.rotary_dim)
                                : fmt::format("{} query and {} KV heads of {}", config.num_heads,
                                              config.num_kv_heads, config.head_dim);
  InfoLine("layers",
           fmt::format("{} of width {}, feed-forward {}, {}", config.num_layers, config.hidden_size,
                       config.intermediate_size, heads),
           out);
  if (latent.rank > 0) {
    InfoLine("attention",
             fmt::format("a latent of {} and a rotated part of {} for all heads, values of {}",
                         latent.rank, latent.rotary_dim, latent.value_dim),
             out);
  }
  DescribeWindows(config, out);
  DescribeLayerShapes(config, out);
  DescribeStates(config, out);
  if (config.per_layer_width > 0) {
    InfoLine("embeddings",
             fmt::format("{} more for each layer, read from the files when used",
                         config.per_layer_width),
             out);
  }
  if (config.experts.num_experts > 0) {
    const ExpertsConfig& experts = config.experts;
    const auto num_layers =
        std::count_if(config.layers.begin(), config.layers.end(),
                      [](const LayerConfig& layer) { return layer.has_experts; });
    std::string text = fmt::format("{} of {} for each token, feed-forward {}", experts.num_chosen,
                                   experts.num_experts, experts.intermediate_size);
    if (experts.shared_intermediate_size > 0) {
      text += fmt::format(", and {} shared", experts.shared_intermediate_size);
    }
    if (experts.beside_dense) text += ", beside the dense part";
    if (experts.routing.num_chosen_groups < experts.routing.num_groups) {
      text += fmt::format(", from {} of {} groups", experts.routing.num_chosen_groups,
                          experts.routing.num_groups);
    }
    if (num_layers < config.num_layers) text += fmt::format(", in {} layers", num_layers);
    InfoLine("experts", text, out);
  }
  if (config.num_prediction_layers > 0) {
    InfoLine("not loaded",
             fmt::format("{} layer{} that predict{} further tokens", config.num_prediction_layers,
                         config.num_prediction_layers == 1 ? "" : "s",
                         config.num_prediction_layers == 1 ? "s" : ""),
             out);
  }
  InfoLine("vocabulary",
           fmt::format("{}, {} output head", config.vocab_size,
                       config.lacks_head            ? "no"
                       : config.tie_word_embeddings ? "tied"
                                                    : "separate"),
           out);
  InfoLine("context", fmt::format("{} tokens", config.max_seq_len), out);
}

Status DescribeFiles(const TextModel& text, const load::ModelFacts& facts, std::string* out) {
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                           Checkpoint::Open(text.dir));
  MINISGL_ASSIGN_OR_RETURN(const auto required, weights::RequiredTensors(facts.config));
  MINISGL_RETURN_IF_ERROR(weights::CheckNothingAbsent(facts.config, *checkpoint));
  InfoLine("weights",
           fmt::format("{:.0f} parameters in {} tensors, {} ({})", CountParameters(required),
                       checkpoint->Names().size(), term::FormatBytes(checkpoint->total_bytes()),
                       StoredFormat(facts.config)),
           out);
  if (HasPredictionLayer(facts.config, *checkpoint)) {
    InfoLine("drafts", "by a layer of its own that predicts further tokens: --speculate mtp", out);
  }
  std::set<std::string> files;
  for (const std::string& name : checkpoint->Names()) files.insert(checkpoint->FileOf(name));
  for (const std::string& file : files) {
    const std::filesystem::path given(file);
    const auto path = given.is_absolute() || std::filesystem::exists(given)
                          ? given
                          : std::filesystem::path(text.dir) / given;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    InfoLine("",
             fmt::format("{}{}", Visible(path.filename().string(), 200),
                         error ? "" : ", " + term::FormatBytes(size)),
             out);
  }
  return Status();
}

void DescribeTemplate(const TextModel& model, std::string* out) {
  const ChatTemplate* chat = model.chat_template.get();
  InfoLine("template", chat != nullptr ? "yes" : "none; give one with --chat-template", out);
  if (chat == nullptr) return;
  const auto name = [](ContentForm form) {
    return form == ContentForm::kParts ? "a list of parts" : "a string";
  };
  const ContentForm plain = chat->content_form(), with_tools = chat->content_form(true);
  std::string text = fmt::format("takes the content of messages as {}", name(plain));
  if (with_tools != plain) text += fmt::format(", with tools as {}", name(with_tools));
  InfoLine("", text, out);
  const ToolDialect dialect = DetectToolDialect(*chat, *model.tokenizer);
  const std::string_view shown = dialect == ToolDialect::kNone ? "none known" : NameOf(dialect);
  InfoLine("tool dialect", std::string(shown), out);
}

void DescribeText(const TextModel& text, const load::ModelFacts& facts, std::string* out) {
  const Tokenizer& tokenizer = *text.tokenizer;
  // An encoder names what stands around a text in no other place.
  const auto shown = [&](const std::string& role, const std::vector<TokenId>& around) {
    if (role.empty() && facts.config.is_encoder && around.size() == 1) {
      return Visible(tokenizer.PieceText(around[0]));
    }
    return role.empty() ? std::string("nothing") : Visible(role);
  };
  InfoLine("tokenizer",
           fmt::format("{} tokens, begins with {}, ends with {}", tokenizer.vocab_size(),
                       shown(tokenizer.bos_token(), tokenizer.Prefix()),
                       shown(tokenizer.eos_token(), tokenizer.Suffix())),
           out);
  DescribeTemplate(text, out);
  std::set<TokenId> eos(facts.config.eos_token_ids.begin(), facts.config.eos_token_ids.end());
  eos.insert(facts.generation.eos_token_ids.begin(), facts.generation.eos_token_ids.end());
  if (tokenizer.eos_id()) eos.insert(*tokenizer.eos_id());
  std::string ids;
  for (const TokenId id : eos) {
    ids += fmt::format("{}{}", ids.empty() ? "" : ", ", id);
    if (id < tokenizer.vocab_size()) ids += fmt::format(" ({})", Visible(tokenizer.PieceText(id)));
  }
  InfoLine("end tokens", ids.empty() ? "none" : ids, out);
}

// How the model is divided between ranks, whether memory for all of them is there or not.
Status DescribeRanks(const load::EngineOptions& options, const ModelConfig& config,
                     std::string* out) {
  if (options.tensor_parallel == 1) return Status();
  MINISGL_ASSIGN_OR_RETURN(const auto ranks, load::BytesOfRanks(options, config));
  const auto [least, most] =
      std::minmax_element(ranks.begin(), ranks.end(),
                          [](const auto& a, const auto& b) { return a.weights < b.weights; });
  std::string weights = term::FormatBytes(most->weights);
  if (const std::string low = term::FormatBytes(least->weights); low != weights) {
    weights = low + " to " + weights;
  }
  InfoLine("ranks",
           fmt::format("{}, each with {} of weights, and {} of keys and values a token",
                       ranks.size(), weights, term::FormatBytes(most->kv_per_token)),
           out);
  return Status();
}

// Describes a configuration without weights: their size, and how memory would be used.
Status DescribeShape(const InfoOptions& options, std::string* out) {
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfigFile(options.shape));
  MINISGL_ASSIGN_OR_RETURN(const auto required, weights::RequiredTensors(config));
  DescribeModel(options.shape, config, out);
  InfoLine("weights",
           fmt::format("{:.0f} parameters in {} tensors, {}; no file was looked for",
                       CountParameters(required), required.size(), StoredFormat(config)),
           out);
  MINISGL_RETURN_IF_ERROR(DescribeRanks(options.engine, config, out));
  MINISGL_ASSIGN_OR_RETURN(const load::EngineSetup engine,
                           load::ResolveEngine(options.engine, config));
  DescribePlan(engine, config, out);
  return Status();
}

// Pictures, device and memory of the model `text`, whose configuration *facts has.
Status DescribeEngine(const InfoOptions& options, const TextModel& text, load::ModelFacts* facts,
                      std::string* out) {
  MINISGL_ASSIGN_OR_RETURN(facts->models,
                           load::ModelsOf(facts->config, text, options.engine, &facts->no_images));
  MINISGL_RETURN_IF_ERROR(DescribeAdapters(text, facts->config, out));
  MINISGL_RETURN_IF_ERROR(load::AddAdapters(text, options.engine.max_adapters, &facts->models));
  Result<load::EngineSetup> engine = load::ResolveEngine(options.engine, facts->models, text.dir);
  if (engine.ok()) {
    facts->engine = std::move(engine).value();
    facts->models = load::ModelsThatRun(facts->engine, facts->models);
    if (facts->no_images.ok()) facts->no_images = load::ImagesStatus(facts->engine);
  }
  DescribeImages(text, *facts, out);
  DescribeVectors(text.dir, facts->config, out);
  DescribeScores(text.dir, facts->config, out);
  MINISGL_RETURN_IF_ERROR(DescribeRanks(options.engine, facts->config, out));
  MINISGL_RETURN_IF_ERROR(engine.status());
  DescribePlan(facts->engine, facts->config, out);
  return Status();
}

// How the model of a GGUF file would run: text, device and memory.
Status DescribeRun(const std::string& path, const InfoOptions& options, std::string* out) {
  // A large vocabulary takes as long as all the rest: it is read meanwhile.
  std::future<Result<ModelConfig>> reading =
      std::async(std::launch::async, [&path] { return LoadModelConfig(path); });
  MINISGL_ASSIGN_OR_RETURN(const TextModel text, load::LoadTextModel(options.model));
  load::ModelFacts facts;
  MINISGL_ASSIGN_OR_RETURN(facts.config, reading.get());
  DescribeText(text, facts, out);
  return DescribeEngine(options, text, &facts, out);
}

// A file that does not run is described, too.
Status DescribeGgufModel(const std::string& path, const InfoOptions& options, std::string* out) {
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  DescribeGguf(file, out);
  std::string run;
  const Status runs = DescribeRun(path, options, &run);
  InfoLine("runs", runs.ok() ? "yes" : fmt::format("no: {}", runs.message()), out);
  *out += run;
  DescribeGgufMetadata(file, out);
  return Status();
}

// On error, `out` holds the description so far.
Status Describe(const InfoOptions& options, std::string* out) {
  MINISGL_RETURN_IF_ERROR(load::CheckDeviceUsable(options.engine.device));
  if (!options.shape.empty()) return DescribeShape(options, out);
  MINISGL_ASSIGN_OR_RETURN(const std::string dir, load::ResolveModelDir(options.model.model));
  if (IsGgufFile(dir)) return DescribeGgufModel(dir, options, out);
  MINISGL_ASSIGN_OR_RETURN(const TextModel text, load::LoadTextModel(options.model));
  load::ModelFacts facts;
  MINISGL_ASSIGN_OR_RETURN(facts.config, LoadModelConfig(text.dir));
  MINISGL_ASSIGN_OR_RETURN(facts.generation,
                           LoadGenerationConfig(text.dir, facts.config.vocab_size));
  DescribeModel(text.dir, facts.config, out);
  MINISGL_RETURN_IF_ERROR(DescribeFiles(text, facts, out));
  DescribeText(text, facts, out);
  return DescribeEngine(options, text, &facts, out);
}

// The user's configuration file: its place and its values, line by line.
std::string DescribeConfigFile(const load::ConfigFile& file) {
  if (file.path.empty()) return "no configuration file: HOME is not set\n";
  const std::string path = Visible(file.path, 400);
  if (file.left_out) return fmt::format("{} is left out (--no-config)\n", path);
  if (!file.exists) return fmt::format("{} does not exist; it would be read\n", path);
  std::string text = path + "\n";
  for (const load::ConfigEntry& entry : file.entries) {
    const std::string section =
        entry.section.empty() ? "" : fmt::format("[{}] ", Visible(entry.section, 60));
    text += fmt::format("{:>5}  {}{} = {}\n", entry.line, section, Visible(entry.name, 60),
                        Visible(entry.value, 1000));
  }
  if (file.status.ok() && file.entries.empty()) text += "       no values\n";
  return text;
}

}  // namespace

CommandBody AddInfoCommand(load::OptionTable* app) {
  const auto options = std::make_shared<InfoOptions>();
  app->Add("MODEL", &options->named, "As -m; of a GGUF file it shows all that it holds");
  load::AddModelOptions(app, &options->model);
  app->Add("--shape", &options->shape, "A config.json alone, in place of a model directory")
      ->TypeName("FILE");
  app->AddFlag(load::kShowConfig, &options->shows_config,
               "Show the configuration file and its values, in place of a model");
  load::AddEngineOptions(app, &options->engine);
  return [options, app] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    if (!options->named.empty()) options->model.model = options->named;
    std::string text;
    const load::ConfigFile& config = *app->config();
    Status described = config.status;
    if (options->shows_config) {
      text = DescribeConfigFile(config);
    } else if (described.ok()) {
      described = Describe(*options, &text);
    }
    auto output = term::Output::Open("", false, -1);
    if (!output.ok()) return term::Fail(output.status());
    const int exit_status = (*output)->ExitAfter((*output)->Write(term::TableFor(**output, text)));
    return exit_status != 0 || described.ok() ? exit_status : term::Fail(described);
  };
}

}  // namespace minisgl::cli
