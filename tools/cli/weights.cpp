// The verb rotate-weights: writes a model whose projections give rotated values (or keys and queries), so that no
// kernel has to rotate them.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/report.hpp"
#include "tools/quality/rotate_weights.hpp"

namespace kvjit {
namespace {

struct WeightArgs {
  std::string in;  // .safetensors files
  std::string out;
  std::string rotation;              // --rotation: NAME:SIZE
  std::string side;                  // --side: v, k, q or o
  std::vector<std::string> tensors;  // --tensor
  int head_dim = 0;                  // --head-dim; 0: the rotation's size
  bool has_no_rope = false;          // --no-rope
  bool has_no_qk_norm = false;       // --no-qk-norm
};

Result<int> rotate_weights(const Cli& cli, const WeightArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(flag, rotation_flag(registry, args.rotation));
  if (flag.rotation.is_identity()) return fail(Code::usage, "--rotation none would change nothing");
  KV_CHECK(check_apart({args.in}, {args.out}));  // rotated twice, a model is wrong and nobody sees it
  KV_TRY(model, open_safetensors(args.in));
  const int head_dim = args.head_dim ? args.head_dim : flag.group;
  KV_TRY(changed, rotated_tensors(model, {flag.rotation, args.tensors, args.side, head_dim, args.has_no_rope,
                                          args.has_no_qk_norm}));
  KV_CHECK(write_changed(model, changed, args.out));
  if (args.side == "v")
    cli.talk("attention now gives rotated outputs: rotate the output projection too (--side o), or un-rotate them");
  if (args.side == "k" || args.side == "q") cli.talk("keys and queries must both be rotated, and alike");
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, bytes] : changed) {
    const Tensor& tensor = model.tensors.at(name);
    results.push_back({{"tensor", name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    rows.push_back({name, tensor.dtype, tensor.shape_text()});
  }
  cli.print({{"file", args.out}, {"rotation", args.rotation}, {"side", args.side}, {"tensors", results}},
            table_text({"rotated", "type", "shape"}, rows));
  return 0;
}

}  // namespace

void add_weights_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<WeightArgs>();
  CLI::App* verb =
      app.add_subcommand("rotate-weights", "rotate projections of a model once, for caches of rotated values");
  verb->add_option("IN", args->in, "model")->required()->type_name("FILE.safetensors");
  verb->add_option("OUT", args->out, "the same with the named tensors rotated")
      ->required()
      ->type_name("FILE.safetensors");
  verb->add_option("--rotation", args->rotation, "a rotation and the channels of one group: wht_signed:128")
      ->required()
      ->type_name("NAME:SIZE");
  verb->add_option("--tensor", args->tensors, "a projection or its bias (repeatable)")
      ->required()
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("NAME");
  one_of(verb->add_option("--side", args->side,
                          "what they project; o is the output projection, which takes rotated values"),
         {"v", "k", "q", "o"})
      ->required();
  whole_number(verb->add_option("--head-dim", args->head_dim, "channels of a head"), "D", 1, 4096)
      ->default_str("those of the rotation");
  verb->add_flag("--no-rope", args->has_no_rope, "this model has no RoPE between projection and attention");
  verb->add_flag("--no-qk-norm", args->has_no_qk_norm, "this model has no norm between projection and attention");
  verb->callback([&cli, args] { cli.action = [&cli, args] { return rotate_weights(cli, *args); }; });
}

}  // namespace kvjit
