# SPDX-License-Identifier: Apache-2.0
"""Plans, exports to TRL, LLaMA-Factory and axolotl, and asks each tool's own code about its recipe: its parser or schema reads the file, then
its entry point builds model and Trainer as rank 0 of the plan's ranks, and ends where training would begin. Ranks are a fake process group
on the CPU, model and data are tiny ones in the place of the file's, and attention is SDPA's. A key that a tool drops without a word counts
as refused. Not judged: kernels, memory, and what happens in training.

Usage: tuner_judge.py PROGRAMS ENVIRONMENTS [CASES]. ENVIRONMENTS has a virtual environment of Python 3.12 for each tool (PyTorch 2.14.1, since
axolotl takes none from 2.15 on); pip installs, and deepspeed is built with DS_BUILD_OPS=0 and --no-build-isolation:
  trl           torch==2.14.1 trl==1.16.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2 bitsandbytes==0.50.2 torchao==0.18.0
                deepspeed==0.19.8
  llamafactory  torch==2.14.1 llamafactory==0.9.5 transformers==5.6.0 bitsandbytes==0.50.2 liger-kernel==0.8.4 deepspeed==0.19.8, then
                accelerate==1.15.0 with --no-deps (0.9.5 names 1.11.0 as its last, and its own check takes up to 1.15.0)
  axolotl       axolotl==0.21.0 deepspeed==0.19.8, which bring torch 2.14.1, transformers 5.20.1, accelerate 1.15.0, bitsandbytes 0.50.2
They take some 8 GB, so that the gate leaves this out. Exit code 77: no environment is there.
"""
import json
import os
import subprocess
import sys
import tempfile

MODEL = "--model Qwen/Qwen3-8B --cluster dgx-h100:1 --global-batch 16 --seq 4096"
CASES = {
    "fsdp, zero 3": f"{MODEL} --framework transformers-fsdp --zero 3",
    "fsdp, zero 2, accumulation": f"{MODEL} --framework transformers-fsdp --zero 2 --micro-batch 1 --recompute full",
    "fsdp, recompute": f"{MODEL} --framework transformers-fsdp --zero 3 --recompute full --micro-batch 2",
    "fsdp, lora": f"{MODEL} --framework transformers-fsdp --zero 3 --lora 16",
    "fsdp, lora, zero 2": f"{MODEL} --framework transformers-fsdp --zero 2 --lora 16",
    "ddp, one target": f"{MODEL} --framework transformers-ddp --gpus 2 --lora 16 --lora-targets output",
    "fsdp, no logits": f"{MODEL} --framework transformers-fsdp --zero 3 --execution loss=chunked",
    "deepspeed, zero 3, offload": f"{MODEL} --framework transformers-deepspeed --zero 3 --cp 1 --offload on",
    "ddp, lora": f"{MODEL} --framework transformers-ddp --gpus 2 --lora 16",
    "fsdp, offload": f"{MODEL} --framework transformers-fsdp --zero 3 --cp 1 --offload on --lora 16",
    "fsdp, qlora": f"{MODEL} --framework transformers-fsdp --zero 3 --cp 1 --lora 16 --frozen-weights nf4",
    "one, int8": f"{MODEL} --framework transformers-ddp --gpus 1 --lora 8 --frozen-weights int8",
    "ddp, packed": f"{MODEL} --framework transformers-ddp --gpus 2 --lora 8 --lengths 512=0.3,2048=0.7",
    "one, qlora": f"{MODEL} --framework transformers-ddp --gpus 1 --lora 8 --frozen-weights nf4",
    "ddp, small": "--model llama3.2-1b --cluster dgx-h100:1 --global-batch 16 --seq 4096 --framework transformers-ddp --gpus 2",
}
FILES = {"trl": "sft.yaml", "llamafactory": "recipe.yaml", "axolotl": "recipe.yaml"}
# What a machine without a GPU says in the place of the tool.
NEEDS_GPU = ("Found no NVIDIA driver", "torch_native Ring kernel is forward-only", "Axolotl's fork of cut_cross_entropy")


class Accepted(BaseException):
    """Raised in the place of Trainer.train()."""


def say(text):
    print(f"judged: {text}", flush=True)


def written(values):
    import yaml
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        yaml.safe_dump(values, file)
    return file.name


def make_tiny(folder):
    """A Llama of four layers, its tokenizer, and texts, in the forms that the tools take."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    text = [f"sentence number {i} is about the word {i * 7 % 13} and the sum {i + i * i}." for i in range(500)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=512, special_tokens=["<pad>", "<s>", "</s>"],
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=4096)
    fast.chat_template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '</s>' }}{% endfor %}"
    config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=176, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    fast.save_pretrained(folder)
    with open(f"{folder}/text.jsonl", "w") as file:
        file.writelines(json.dumps({"text": " ".join(text[i:i + 12])}) + "\n" for i in range(480))
    with open(f"{folder}/alpaca.json", "w") as file:
        json.dump([{"instruction": text[i], "input": "", "output": " ".join(text[i:i + 8])} for i in range(400)], file)
    with open(f"{folder}/dataset_info.json", "w") as file:
        json.dump({"tiny": {"file_name": "alpaca.json"}}, file)


def pretend_gpus():
    """accelerate's ways over several GPUs run on CPU processes, and bf16 is taken."""
    import accelerate.parallelism_config
    import accelerate.state
    import torch
    import transformers.training_args as arguments
    import transformers.utils.import_utils as utilities
    state, kinds = accelerate.state.PartialState, accelerate.state.DistributedType
    first = state._prepare_backend

    def backend(self, *args, **kwargs):
        return ("gloo", kinds.MULTI_GPU) if int(os.environ.get("WORLD_SIZE", 1)) > 1 else first(self, *args, **kwargs)

    state._prepare_backend, state.set_device = backend, lambda self: setattr(self, "device", torch.device("cpu"))
    meshes = accelerate.parallelism_config.ParallelismConfig
    build = meshes.build_device_mesh
    meshes.build_device_mesh = lambda self, device_type: build(self, "cpu")
    for module in (arguments, utilities, sys.modules["transformers.utils"]):
        for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
            if hasattr(module, name):
                setattr(module, name, lambda *a, **k: True)
    arguments.enable_tf32 = lambda *a, **k: None


def open_ranks(ranks):
    """Rank 0 of so many; collectives do nothing."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    if ranks > 1:
        import torch.distributed as dist
        from torch.testing._internal.distributed import fake_pg  # noqa: F401, which registers the group
        # axolotl reads back from the store what rank 0 wrote there.
        dist.init_process_group("fake", rank=0, world_size=ranks, store=dist.HashStore())


def launched(arguments):
    """Sets the environment that accelerate launch gives to processes; its arguments."""
    import torch
    from accelerate.commands import launch
    from accelerate.utils import launch as environments
    args = launch.launch_command_parser().parse_args(arguments)
    torch.cuda.device_count, torch.cuda.is_available = lambda: 8, lambda: True
    args, _, _ = launch._validate_launch_command(args)
    torch.cuda.device_count, torch.cuda.is_available = lambda: 0, lambda: False
    args.deepspeed_fields_from_accelerate_config = "" if args.deepspeed_config_file else getattr(args, "deepspeed_fields_from_accelerate_config", "")
    prepare = (environments.prepare_deepspeed_cmd_env if args.use_deepspeed else
               environments.prepare_multi_gpu_env if args.multi_gpu or args.use_fsdp else environments.prepare_simple_launcher_cmd_env)
    made = prepare(args)
    env = made[1] if isinstance(made, tuple) else made
    os.environ |= {k: v for k, v in env.items() if k.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "FP8_", "OFFLOAD"))}
    return args


def read(file):
    import yaml
    with open(file, encoding="utf-8") as text:
        return yaml.safe_load(text)


def judge_trl(file, ranks, tiny):
    import importlib.resources as resources
    from trl.cli.accelerate_config import resolve_accelerate_config_argument
    from trl.scripts import sft
    from trl.scripts.utils import DatasetConfig
    given = read(file)
    # As TrainingCommand.run (trl/cli/commands/training.py:66): words that the parser does not know go to accelerate launch.
    fields = {action.dest for action in sft.make_parser(prog="trl sft")._actions}
    rest = [word for key, value in given.items() if key not in fields and key != "env" for word in (f"--{key}", str(value))]
    args = launched(resolve_accelerate_config_argument(rest) + [str(resources.files("trl.scripts").joinpath("sft.py")), "--config", file])
    open_ranks(ranks)
    replaced = given | {"use_cpu": not args.use_deepspeed, "output_dir": tempfile.mkdtemp()}
    *parsed, remaining = sft.make_parser().parse_args_and_config(["--config", written(replaced)], return_remaining_strings=True)
    if remaining != rest:
        raise ValueError(f"other remaining words: {remaining}")
    script, training, model, data = parsed
    model.model_name_or_path, model.attn_implementation, training.report_to = tiny, "sdpa", []
    script.dataset_name, data.datasets = None, [DatasetConfig(path="json", data_files=f"{tiny}/text.jsonl")]
    sft.main(script, training, model, data)


def judge_llamafactory(file, ranks, tiny):
    os.environ["LLAMAFACTORY_VERBOSITY"] = "WARN"
    given = read(file)
    if not given.get("deepspeed") and ranks > 1:
        launched(["--config_file", os.path.join(os.path.dirname(file), "accelerate.yaml"), "launcher.py", file])
    open_ranks(ranks)
    from llamafactory.train.tuner import run_exp
    run_exp(given | {"output_dir": tempfile.mkdtemp(), "use_cpu": not given.get("deepspeed"), "model_name_or_path": tiny, "dataset": "tiny",
                     "dataset_dir": tiny, "template": "empty", "report_to": "none", "flash_attn": "sdpa"})


def judge_axolotl(file, ranks, tiny):
    import axolotl.cli.config as config
    import axolotl.utils.environment as environment
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault
    environment.check_cuda_p2p_ib_support = environment.check_cuda_p2p_support = lambda: True
    os.environ["WORLD_SIZE"] = str(ranks)
    capable = ({"bf16": True, "fp8": True, "tf32": True, "n_gpu": ranks, "compute_capability": "sm_90"}, {"torch_version": config.torch.__version__.split("+")[0]})
    given, cfg = read(file), DictDefault(read(file))
    config.prepare_plugins(cfg)
    valid = validate_config(cfg, capabilities=capable[0], env_capabilities=capable[1])
    dropped = [key for key, value in given.items() if key not in valid and value is not None]
    dropped += [f"fsdp_config.{key}" for key in given.get("fsdp_config", {}) if key not in valid["fsdp_config"]]
    if dropped:
        raise ValueError(f"axolotl drops without a word: {', '.join(dropped)}")
    open_ranks(ranks)
    config.gpu_capabilities = lambda: capable
    replaced = given | {"base_model": tiny, "datasets": [{"path": "synthetic", "type": "_synthetic", "length": 64}], "output_dir": tempfile.mkdtemp(),
                        "dataset_prepared_path": tempfile.mkdtemp(), "dataloader_num_workers": 0, "val_set_size": 0, "attn_implementation": "sdpa"}
    from axolotl.cli.train import do_cli
    sys.argv = ["train"]
    do_cli(written(replaced))


def values_of(trainer):
    """What the Trainer that the tool built would train with, in the words of a plan."""
    args, accelerator = trainer.args, trainer.accelerator
    # The state lacks the first where LLaMA-Factory starts plain replicas.
    fsdp, engine = getattr(accelerator.state, "fsdp_plugin", None), accelerator.state.deepspeed_plugin
    values = {"micro_batch": args.per_device_train_batch_size, "micro_batches": args.gradient_accumulation_steps,
              "recomputes": args.gradient_checkpointing or any(getattr(part, "gradient_checkpointing", False) is True for part in trainer.model.modules()),
              "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32", "zero": 0, "offload": False}
    if fsdp:
        values |= {"zero": 3 if fsdp.reshard_after_forward else 2, "offload": type(fsdp.cpu_offload).__name__ == "CPUOffloadPolicy"}
        values["recomputes"] |= bool(fsdp.activation_checkpointing)
    if engine:
        zero = engine.deepspeed_config["zero_optimization"]
        values |= {"zero": zero["stage"], "offload": zero.get("offload_optimizer", {}).get("device", "none") == "cpu"}
    adapters = getattr(trainer.model, "peft_config", {})
    values["adapter_rank"] = next(iter(adapters.values())).r if adapters else 0
    base = next((module for module in trainer.model.modules() if type(module).__name__ in ("Linear4bit", "Linear8bitLt")), None)
    return values | {"frozen": {"Linear4bit": "nf4", "Linear8bitLt": "int8"}.get(type(base).__name__, "bf16")}


def of_plan(plan):
    layout, training = plan["layout"], plan["layout"].get("training", {})
    return {"micro_batch": layout["micro_batch"], "micro_batches": plan["workload"]["global_batch"] // layout["data"] // layout["micro_batch"],
            "recomputes": layout["recompute"] == "full", "precision": layout["precision"], "zero": layout.get("zero", 0),
            "offload": layout.get("offload_optimizer", False), "adapter_rank": training.get("adapter_rank", 0), "frozen": training.get("frozen_format", "bf16")}


def inside(tool, file, ranks):
    """In the tool's interpreter: exit code 0 where it takes the file, 1 with its words where it does not."""
    os.chdir(os.path.dirname(file))
    tiny = tempfile.mkdtemp()
    make_tiny(tiny)
    pretend_gpus()
    import transformers

    def train(self, *args, **kwargs):
        print(f"values: {json.dumps(values_of(self))}", flush=True)
        raise Accepted

    transformers.Trainer.train = train
    code = 1
    try:
        {"trl": judge_trl, "llamafactory": judge_llamafactory, "axolotl": judge_axolotl}[tool](file, int(ranks), tiny)
        say("the entry point ended without training")
    except Accepted:
        say("accepted")
        code = 0
    except BaseException as error:  # SystemExit of parsers, too
        words = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        code = 0 if any(word in str(error) for word in NEEDS_GPU) else 1
        say(f"accepted by its schema; to build the Trainer needs a GPU: {words}" if code == 0 else f"refused: {words}")
    sys.stdout.flush()
    os._exit(code)


def ask(environments, tool, file, ranks, wanted=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))}
    env |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "AXOLOTL_DO_NOT_TRACK": "1",
            "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531",
            "PATH": f"{environments}/{tool}/bin:{os.environ['PATH']}"}
    done = subprocess.run([f"{environments}/{tool}/bin/python", os.path.abspath(__file__), "--inside", tool, file, str(ranks)], env=env,
                          capture_output=True, text=True, check=False)
    said = [line[8:] for line in done.stdout.splitlines() if line.startswith("judged: ")]
    values = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("values: ")]
    other = [f"{name} {got} in place of {wanted[name]}" for name, got in values[-1].items() if got != wanted[name]] if values and wanted else []
    if other:
        return 1, f"trains otherwise: {', '.join(other)}"
    return done.returncode if said else 1, said[-1] if said else (done.stdout + done.stderr)[-1500:]


def main():
    programs, environments, *names = sys.argv[1:]
    tools = [tool for tool in FILES if os.path.exists(f"{environments}/{tool}/bin/python")]
    if not tools:
        print(f"skipped: {environments} has no environment of {', '.join(FILES)}")
        sys.exit(77)
    counts = {"accepted": 0, "refused": 0, "not exported": 0}
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            plan = f"{folder}/plan.json"
            subprocess.run([f"{programs}/mpt-plan", *CASES[name].split(), "-o", plan], check=True, capture_output=True)
            with open(plan, encoding="utf-8") as file:
                planned = json.load(file)
            layout, wanted = planned["layout"], of_plan(planned)
            for tool in tools:
                done = subprocess.run([f"{programs}/mpt-plan", "export", plan, "--to", tool, "-o", f"{folder}/{tool}"], capture_output=True, text=True, check=False)
                if done.returncode != 0:  # by its table of what the tool lacks
                    counts["not exported"] += 1
                    print(f"{name}: {tool}: not exported: {' '.join(done.stderr.split())[:160]}")
                    continue
                code, said = ask(environments, tool, f"{folder}/{tool}/{FILES[tool]}", layout["data"] * layout["context"], wanted)
                counts["refused" if code else "accepted"] += 1
                print(f"{name}: {tool}: {said}")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    sys.exit(1 if counts["refused"] or not counts["accepted"] else 0)


if __name__ == "__main__":
    inside(*sys.argv[2:]) if sys.argv[1:2] == ["--inside"] else main()
