"""Reads and writes heads in the published formats: EAGLE, EAGLE-3, and DFlash's for block heads."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from block import BlockHead, BlockShape
from head import Eagle1Head, Eagle3Head, HeadShape
from llama import load_tensors
from target import Target


Head = Eagle1Head | Eagle3Head | BlockHead


def save_head(head: Head, target: Target, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to("cpu", torch.bfloat16).contiguous()
               for name, value in head.state_dict().items()}
    config = _shared_config(head.shape, target)
    if isinstance(head, BlockHead):
        config |= _block_config(head.shape, target)
    elif isinstance(head, Eagle1Head):
        config |= {"architectures": ["LlamaForCausalLMEagle"], "model_type": "llama",
                   "num_hidden_layers": 1, "bias": True}
    else:
        config |= _eagle3_config(head.shape, target)
        ids = head.draft_ids.cpu()
        in_draft = torch.zeros(head.shape.vocab, dtype=torch.bool)
        in_draft[ids] = True
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = in_draft
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def _read_config(directory: Path) -> dict:
    return json.loads((directory / "config.json").read_text())


LAST_HIDDEN = [-1]  # the only feature that EAGLE reads


def _is_eagle1(config: dict) -> bool:
    return config["architectures"] == ["LlamaForCausalLMEagle"]


def capture_of(directory: Path) -> list[int] | None:
    """The layers whose input a head reads; None: the target's default."""
    config = _read_config(directory)
    if _is_eagle1(config):
        return LAST_HIDDEN
    if "dflash_config" in config:
        return [1 + layer for layer in config["dflash_config"]["target_layer_ids"]]
    return config.get("eagle_aux_hidden_state_layer_ids")


def load_head(directory: Path, target: Target) -> Head:
    """REQUIRES: the target captures what the head was trained with (capture_of)."""
    tensors = load_tensors(directory)
    config = _read_config(directory)
    rope = target.rope(target.config.max_position_embeddings)
    if "dflash_config" in config:
        head = BlockHead(_block_shape(config), rope)
    elif _is_eagle1(config):
        tensors.pop("embed_tokens.weight", None)  # the target's
        head = Eagle1Head(_eagle_shape(config, 1), target.output_weight, rope)
    else:
        offsets = tensors.pop("d2t", torch.zeros(config["draft_vocab_size"], dtype=torch.long))
        tensors.pop("t2d", None)
        ids = offsets + torch.arange(len(offsets))
        head = Eagle3Head(_eagle_shape(config, len(target.capture)), ids, rope)
    head.load_state_dict(tensors)
    return head.to(target.device)


def _eagle_shape(config: dict, captured: int) -> HeadShape:
    return HeadShape(
        hidden=config["hidden_size"], ffn=config["intermediate_size"],
        heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"], vocab=config["vocab_size"],
        draft_vocab=config.get("draft_vocab_size", config["vocab_size"]), captured=captured,
        norm_eps=config["rms_norm_eps"])


def start_from(head: Eagle1Head | Eagle3Head, source: Eagle1Head | Eagle3Head) -> None:
    """Copies what fits: layers of equal shape, and the output rows of every shared token."""
    own, theirs = head.state_dict(), source.state_dict()
    for name, value in own.items():
        if name != "lm_head.weight" and theirs[name].shape == value.shape:
            value.copy_(theirs[name])
    if "lm_head.weight" not in own:
        return
    rows = source.to_draft[head.draft_ids]
    known = rows >= 0
    head.lm_head.weight.data[known] = source.lm_head.weight.data[rows[known]]


def _shared_config(shape: HeadShape | BlockShape, target: Target) -> dict:
    rope = dict(getattr(target.config, "rope_parameters", None) or {})
    config = {
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": rope.pop("rope_theta", 10000.0),
        "max_position_embeddings": target.config.max_position_embeddings,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": target.config.bos_token_id,
        "eos_token_id": target.config.eos_token_id,
    }
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    return config


def _eagle3_config(shape: HeadShape, target: Target) -> dict:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": shape.draft_vocab,
    }
    if target.capture != target.default_capture:
        # Top level, as in speculators files: layers whose *input* is captured.
        config["eagle_aux_hidden_state_layer_ids"] = target.capture
    return config


def _block_config(shape: BlockShape, target: Target) -> dict:
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "num_hidden_layers": shape.layers,
        "num_target_layers": target.config.num_hidden_layers,
        "layer_types": ["full_attention"] * shape.layers,
        "block_size": shape.block,
        "dflash_config": {
            "mask_token_id": shape.mask_token,
            "target_layer_ids": [layer - 1 for layer in target.capture],  # their *output*
            "causal_head": True,
        },
    }


def _block_shape(config: dict) -> BlockShape:
    return BlockShape(
        hidden=config["hidden_size"], ffn=config["intermediate_size"],
        heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"], vocab=config["vocab_size"],
        layers=config["num_hidden_layers"], block=config["block_size"],
        captured=len(config["dflash_config"]["target_layer_ids"]),
        mask_token=config["dflash_config"]["mask_token_id"], norm_eps=config["rms_norm_eps"])


def choose_draft_vocab(counts: Tensor, size: int) -> tuple[Tensor, float]:
    """The `size` most frequent token ids, ascending, and the share of the text they cover."""
    ids = torch.topk(counts, size).indices.sort().values
    return ids, (counts[ids].sum() / counts.sum()).item()
