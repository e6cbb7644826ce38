// SPDX-License-Identifier: Apache-2.0
#include "frameworks/torchtitan/models.h"

#include <fmt/format.h>

#include "base/json.h"
#include "frameworks/python_file.h"
#include "models/zoo.h"

namespace mpt::frameworks {

const TitanModel* titan_model(const ModelSpec& model) {
  for (const TitanModel& titan : kTitanModels) {
    ModelSpec known = models::load_model(titan.zoo);
    known.name = model.name;
    known.max_positions = model.max_positions;
    if (known == model) return &titan;
  }
  return nullptr;
}

const char* titan_family(const ModelSpec& model) {
  return model.moe() != nullptr || model.attention().query_key_norm != QueryKeyNorm::none ? "qwen3"
                                                                                          : "llama3";
}

namespace {

// What the functions read; torchtitan/models/common/config_utils.py has the pieces.
constexpr const char* kModelCode = R"py(
KINDS = [MODEL["layers"]["kinds"][name] for run in MODEL["layers"]["order"] for name in run["of"] * run["repeat"]]
ATTENTION = KINDS[0]["attention"]
LINEAR = {{"weight": partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}}
EMBEDDING = {{"weight": skip_param_init if MODEL["tied_embeddings"] else partial(nn.init.normal_, std=1.0)}}
EXPERTS = {{name: LINEAR["weight"] for name in ("w1_EFD", "w2_EDF", "w3_EFD")}}


def norm_of(size):
    return RMSNorm.Config(normalized_shape=size, eps=MODEL["norm_epsilon"], param_init={{"weight": nn.init.ones_}})


def rope():
    """Llama 3's scaling of the frequencies, or none."""
    scaling = ATTENTION["rotary"].get("scaling")
    scaled = {{}}
    if scaling:
        scaled = dict(scaling="llama", scaling_factor=scaling["factor"], low_freq_factor=scaling["low_frequency_factor"],
                      high_freq_factor=scaling["high_frequency_factor"],
                      original_max_position_embeddings=scaling["original_positions"])
    kind = ComplexRoPE if scaling else {rope}
    return kind.Config(dim=ATTENTION["head_dim"], max_seq_len=MODEL["max_positions"], theta=ATTENTION["rotary"]["base"], **scaled)


def feed_forward(layer):
    """Experts, or the dense layer where the model has none."""
    moe = KINDS[layer].get("moe")
    if not moe:
        return dict(feed_forward=make_ffn_config(
            dim=MODEL["hidden"], hidden_dim=KINDS[layer]["mlp"]["ffn_hidden"], w1_param_init=LINEAR, w2w3_param_init=LINEAR))
    # torchtitan has no balance loss: a bias in the choice of experts, moved by this much per step, does its work.
    has_bias = moe.get("router_bias", False)
    balance = 1e-3 if has_bias or moe["balance_loss"] else None
    return dict(moe=make_moe_config(
        num_experts=moe["experts"], load_balance_coeff=balance,
        router=make_router_config(
            dim=MODEL["hidden"], num_experts=moe["experts"], gate_param_init=LINEAR, top_k=moe["experts_per_token"],
            score_func="sigmoid" if has_bias else "softmax", route_norm=True),
        routed_experts=make_routed_experts_config(
            dim=MODEL["hidden"], hidden_dim=moe["expert"]["ffn_hidden"], num_experts=moe["experts"],
            top_k=moe["experts_per_token"], param_init=EXPERTS, comm_backend="standard")))


def layer_of(layer):
    attention = make_gqa_config(
        dim=MODEL["hidden"], n_heads=ATTENTION["heads"], n_kv_heads=ATTENTION["kv_heads"], head_dim=ATTENTION["head_dim"],
        wqkv_param_init=LINEAR, wo_param_init=LINEAR, inner_attention=get_attention_config("flex"), fuse_qkv=True, rope=rope(),
        qk_norm=norm_of(ATTENTION["head_dim"]) if ATTENTION.get("query_key_norm") == "per_head" else None)
    return {block}.Config(
        attention_norm=norm_of(MODEL["hidden"]), ffn_norm=norm_of(MODEL["hidden"]), attention=attention, **feed_forward(layer))


def build_model(converters=()):
    """The plan's model of torchtitan's parts."""
    model = {model}.Config(
        dim=MODEL["hidden"], vocab_size=MODEL["vocab"], enable_weight_tying=MODEL["tied_embeddings"],
        tok_embeddings=Embedding.Config(
            num_embeddings=MODEL["vocab"], embedding_dim=MODEL["hidden"], param_init=EMBEDDING),
        norm=norm_of(MODEL["hidden"]),
        lm_head=Linear.Config(in_features=MODEL["hidden"], out_features=MODEL["vocab"], param_init=LINEAR),
        layers=[layer_of(layer) for layer in range(len(KINDS))])
    for converter in converters:
        model = converter.build().convert(model)
    return dataclasses.replace(model_registry("debugmodel"), flavor="plan", model=model)
)py";

}  // namespace

std::string titan_model_code(const ModelSpec& model) {
  const bool llama = std::string(titan_family(model)) == "llama3";
  Json sizes = to_json(model);
  sizes.erase("name");
  std::string text = "# As models are described in a plan.\nMODEL = {\n";
  for (const auto& [key, value] : sizes.items())
    text += fmt::format("    {}: {},\n", Json(key).dump(), python_text(value));
  return text + "}\n" +
         fmt::format(kModelCode, fmt::arg("rope", llama ? "ComplexRoPE" : "CosSinRoPE"),
                     fmt::arg("block", llama ? "Llama3TransformerBlock" : "Qwen3TransformerBlock"),
                     fmt::arg("model", llama ? "Llama3Model" : "Qwen3Model"));
}

}  // namespace mpt::frameworks
