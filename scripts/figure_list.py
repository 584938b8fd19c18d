"""The benchmarks of the documentation: their commands, and who makes tables of them."""

from typing import Callable, NamedTuple

import figure_tables as tables
import gpu_tables


class Figure(NamedTuple):
    name: str  # in its markers
    commands: list  # as they are shown, one JSON each
    table: Callable  # makes the table from the list of JSON
    quick: dict = {}  # values of flags with --quick
    server: str = ""  # runs beside the commands; they get its --url
    is_text: bool = False  # the result is what the command prints, not its JSON


MODES = "plain,ngram,suffix,standalone,eagle3,merged"
CHATS = "tests/data/prompts/chats.jsonl"
DOCS = "tests/data/prompts/docs.jsonl"
BOOKS = "tests/data/prompts/books.jsonl"
JSON = "tests/data/prompts/json.jsonl"
FEW = {"--repeats": "1", "--max-tokens": "16"}


def decode(prompts, modes, more, temperature=0):
    return (
        f"build/talon bench decode --prompts {prompts} --modes {modes} --temperature {temperature}"
        f" {more}"
    )


def batches(command, *more):
    """Text that lookups know from the repeat before, and text that is new each time."""
    return [
        f"{command} --batches 1,4,16,64 --max-sequences 64 --prompts {prompts}"
        f" --temperature {temperature} --speculative-algorithm {name}"
        for prompts, temperature in ((DOCS, 0), (BOOKS, 0.7))
        for name in ("EAGLE3", "SUFFIX", "EAGLE3,SUFFIX", *more)
    ]


def tasks(more):
    return f"build/talon bench tasks --temperature 0 {more}".strip()


CPU = [
    Figure("run", ["build/talon show"], tables.printed, is_text=True),
    Figure(
        "speculation",
        [decode(file, MODES, "--max-tokens 256 --repeats 3") for file in (CHATS, DOCS, BOOKS)],
        tables.speculation,
        FEW,
    ),
    Figure(
        "sampled",
        [
            decode(file, "plain,suffix,eagle3,merged", "--max-tokens 256 --repeats 3", 0.7)
            for file in (CHATS, DOCS, BOOKS)
        ],
        tables.speculation,
        FEW,
    ),
    Figure(
        "int8",
        [
            decode(file, "plain,suffix,eagle3", "--max-tokens 160 --repeats 3 --weights int8")
            + " --speculative-draft-weights int8"
            for file in (CHATS, DOCS)
        ],
        tables.speculation,
        FEW,
    ),
    Figure(
        "eagle3",
        [
            decode(file, "plain,eagle3", "--max-tokens 256 --repeats 3", temperature)
            + " --speculative-adaptive false"
            for file in (CHATS, DOCS, BOOKS)
            for temperature in (0, 0.7)
        ],
        tables.eagle3,
        FEW,
    ),
    Figure(
        "tasks",
        [tasks("--limit 100" + more) for more in ("", " --weights int8", " --weights int4")]
        + [
            tasks(
                "--limit 100 --kinds passage --enable-specpv --specpv-mode fast"
                f" --specpv-partial-threshold 512 --specpv-n-retrieval-blocks {blocks}"
            )
            for blocks in (16, 32, 64)
        ],
        tables.tasks,
        {"--limit": "1"},
    ),
    Figure(
        "json",
        [decode(JSON, "plain,grammar,eagle3,eagle3+grammar", "--max-tokens 256 --repeats 3")],
        tables.json_answers,
        FEW,
    ),
    Figure("grammar", ["build/talon bench grammar"], tables.grammar),
    Figure(
        "longcontext",
        [
            "build/talon bench longcontext --contexts 4096,30000 --budgets 2048 --max-tokens 256"
            " --temperature 0"
            " --prompts-per-context 1"
        ],
        tables.longcontext,
        {"--contexts": "1024,4096", "--max-tokens": "16"},
    ),
    Figure(
        "agreement",
        [
            "build/talon bench agreement --speculative-algorithm EAGLE3 --contexts 6000"
            " --prompts-per-context 6"
        ],
        tables.agreement,
        {"--contexts": "1024", "--prompts-per-context": "1"},
    ),
    Figure(
        "recall",
        [
            "build/talon bench longcontext --contexts 1024 --max-tokens 2 --temperature 0"
            " --modes plain,plain+specpv-fast --budgets 128,256 --specpv-partial-threshold 256"
            f" --recall tests/data/prompts/recall.jsonl --specpv-selector {selector}"
            for selector in ("attention", "quest", "h2o", "streaming")
        ],
        tables.recall,
    ),
    Figure(
        "batch",
        batches("build/talon bench batch --max-tokens 192 --repeats 3"),
        tables.batches,
        {"--repeats": "1", "--max-tokens": "32", "--batches": "1,2"},
    ),
    Figure(
        "load",
        ["build/talon bench load --clients 32 --seconds 30 --alone-seconds 10 --disconnects 0.05"],
        tables.load,
        {"--clients": "4", "--seconds": "2", "--alone-seconds": "1"},
        server="build/talon serve --speculative-algorithm EAGLE3",
    ),
    Figure(
        "remote",
        [
            "build/talon bench remote --num-prompts 1 --repeats 2 --max-tokens 96 --temperature 0"
            " --rtts-ms 0,5,20,100 --loss 0.01 --loss-rtt-ms 20"
        ],
        tables.remote,
        {"--repeats": "1", "--max-tokens": "16", "--rtts-ms": "5", "--loss": "0"},
    ),
    Figure(
        "verify",
        ["build/talon bench verify --nodes 1,4,8,16,64 --depths 0,4096,16384 --repeats 25"],
        tables.verify,
        {"--nodes": "1,8", "--depths": "0,1024", "--repeats": "2"},
    ),
    Figure(
        "scv",
        ["build/talon bench scv --lengths 16,48 --chunks 0,4,8,16"],
        tables.scv,
        {"--lengths": "16", "--chunks": "0,4"},
    ),
    Figure(
        "nwor",
        ["build/talon bench nwor --batches 1,4 --nodes 32 --tokens 48 --repeats 5"],
        tables.nwor,
        {"--batches": "1", "--nodes": "8", "--tokens": "16", "--repeats": "1"},
    ),
    Figure(
        "limits",
        [
            f"build/talon bench decode --shape llama-1b --weights {weights} --max-tokens 32"
            " --repeats 3"
            for weights in ("int4", "int8", "bf16", "f16")
        ],
        tables.limits,
        {"--shape": "tiny", "--max-tokens": "8", "--repeats": "1"},
    ),
    Figure(
        "experts",
        ["build/talon bench verify --shape gpt-oss-20b --nodes 1,4,8 --depths 0 --repeats 9"],
        tables.verify,
        {"--shape": "gpt-oss-tiny", "--repeats": "2"},
    ),
    Figure(
        "ops",
        ["build/talon bench ops --weights int8 --rows 1,8,64,512"],
        tables.ops,
        {"--rows": "1,8"},
    ),
]

GPU_EAGLE3 = (
    "build-cuda/talon bench decode --device cuda --model models/tiny"
    " --prompts models/tiny/prompts_tokens.jsonl --speculative-draft-model-path models/tiny-eagle3"
    " --speculative-adaptive=false --modes plain,eagle3 --max-tokens 128 --repeats 3"
)
GPU_PASSES = "build-cuda/talon bench gpu --device cuda --nodes 1,8,16,64,128"
GPU_SPECPV = (  # the agreement of `quest` with 4096 tokens in the table of agreement
    "build-cuda/talon bench simulate --device cuda --shape llama-8b"
    " --speculative-eagle-topk 1 --acceptance 0.8,0.75,0.7,0.65,0.6"
    " --specpv-agreement 0.95,0.99,0.97,0.97,0.96,0.97,0.98"
)
GPU = [
    Figure("nodes", [GPU_PASSES + " --tables nodes"], gpu_tables.gpu_nodes),
    Figure("sequences", [GPU_PASSES + " --tables sequences"], gpu_tables.gpu_sequences),
    Figure(
        "prompts",
        [
            "build-cuda/talon bench decode --device cuda --shape llama-8b --max-tokens 8 --repeats 3"
            f" --prompt-tokens {tokens}"
            for tokens in (4096, 32768)
        ],
        gpu_tables.gpu_prompts,
    ),
    Figure(
        "weights",
        [
            "build-cuda/talon bench gpu --device cuda --nodes 1,16,64,128 --contexts 1024"
            " --tables nodes --weights " + name
            for name in ("bf16", "fp8", "int8", "int4")
        ]
        + [
            "build-cuda/talon bench decode --device cuda --shape llama-8b --max-tokens 8 --repeats 3"
            " --prompt-tokens 4096 --weights " + name
            for name in ("bf16", "fp8", "int8", "int4")
        ],
        gpu_tables.gpu_weights,
    ),
    Figure("partial", [GPU_PASSES + " --tables partial,batch"], gpu_tables.gpu_partial),
    Figure("offload", [GPU_PASSES + " --tables offload"], gpu_tables.gpu_offload),
    Figure("decode", [GPU_EAGLE3], gpu_tables.gpu_decode),
    Figure(
        "experts",
        [
            "build-cuda/talon bench gpu --device cuda --shape " + shape + " --nodes 1,2,4,8,16,64"
            " --contexts 1024 --tables nodes"
            for shape in ("gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b")
        ],
        gpu_tables.gpu_experts,
    ),
    Figure(
        "simulate",
        [
            "build-cuda/talon bench simulate --device cuda --shape llama-8b --contexts 1024"
            " --batches 1,2,4,8,16,32,64 " + tree
            for tree in (
                "--speculative-eagle-topk 10 --speculative-num-draft-tokens 60"
                " --acceptance 0.92,0.92,0.92,0.92,0.92,0.92,0.92",
                "--speculative-eagle-topk 1 --acceptance 0.8,0.75,0.7",
            )
        ],
        gpu_tables.gpu_simulate,
    ),
    Figure(
        "policy",
        [
            f"build-cuda/talon bench simulate --device cuda --shape {shape} --contexts 1024"
            " --batches 1,8,32 --policy --speculative-eagle-topk 1 --acceptance "
            + ",".join(["0.655"] * 7)
            for shape in ("gpt-oss-20b", "gpt-oss-120b")
        ],
        gpu_tables.gpu_policy,
    ),
    Figure(
        "blocks",
        [
            "build-cuda/talon bench simulate --device cuda --shape llama-8b --contexts 1024"
            " --batches 1 --speculative-algorithm JETSPEC --speculative-eagle-topk 7"
            f" --speculative-num-draft-tokens 128 --acceptance {acceptance}"
            for acceptance in (",".join(["0.91"] * 20), ",".join(["0.797"] * 20))
        ],
        gpu_tables.gpu_simulate,
    ),
    Figure(
        "specpv",
        [
            GPU_SPECPV + more
            for more in (
                " --contexts 32768,65536,128000 --batches 1 --steps 96",
                " --contexts 65536 --batches 8,32 --num-prompts 4 --steps 24",
            )
        ],
        gpu_tables.gpu_specpv,
    ),
    Figure(
        "specpv_tiny",
        [
            GPU_SPECPV.replace("--shape llama-8b", "--model models/tiny")
            + " --contexts 30000 --batches 1,8,32 --steps 48"
        ],
        gpu_tables.gpu_specpv,
    ),
    Figure(
        "batches",
        batches(
            "build-cuda/talon bench batch --device cuda --max-tokens 400 --repeats 3",
            "JETSPEC,SUFFIX",
        ),
        tables.batches,
    ),
    Figure(
        "heads",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {file} --temperature {temperature}"
            " --modes plain,eagle3,jetspec --speculative-adaptive=false --speculative-num-steps 7"
            " --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --max-tokens 128 --repeats 3"
            for file, temperature in ((CHATS, 0), (CHATS, 0.7), (DOCS, 0), (BOOKS, 0))
        ],
        gpu_tables.gpu_heads,
    ),
    Figure(
        "auto",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {file} --temperature 0"
            " --modes plain,eagle3+suffix,jetspec+suffix --max-tokens 128 --repeats 3"
            for file in (CHATS, DOCS)
        ],
        gpu_tables.gpu_heads,
    ),
    Figure(
        "answers",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {JSON} --temperature 0"
            " --modes plain,grammar,eagle3,eagle3+grammar --max-tokens 256 --repeats 3"
        ],
        tables.json_answers,
    ),
    Figure(
        "written",
        ["build-cuda/talon bench nwor --device cuda --batches 1,4 --nodes 32 --tokens 48 --repeats 5"],
        tables.nwor,
    ),
]

GPU_TITLES = {
    "nodes": "One sequence, whole prefix:",
    "sequences": "Plain decoding of many sequences at once, 1024 tokens each:",
    "prompts": "Prompts, in the chunks that serving uses; the peak is that of the tensor cores alone:",
    "weights": "Quantised weights, one sequence of 1024 tokens, and prompts of 4096:",
    "partial": "SpecPV, partial steps that read 4096 tokens:",
    "offload": "`--kv-offload`, 65536 tokens, partial steps of 16 nodes over 4096:",
    "decode": "`models/tiny` with EAGLE-3, the whole tree, on documentation and books, where few drafts are accepted:",
    "experts": "Models with experts, one sequence of 1024 tokens; the floor has the bytes of as many"
    " experts as independent rows choose:",
    "simulate": "What the card would make of a published EAGLE-3 head (below):",
    "policy": "Models with experts and an EAGLE-3 head of the published acceptance, nodes by the policy:",
    "blocks": "A block head of five layers with JetSpec's trees and two of its accept lengths (below):",
    "specpv": "SpecPV, generation: the 8B shape with chosen acceptance and the agreement of `models/tiny`"
    " (below); other sequences of a batch share four prompts:",
    "specpv_tiny": "The same with the passes of `models/tiny`:",
    "batches": "`models/tiny`, many sequences at once; speculation off, always and by the policy:",
    "heads": "`models/tiny`, its EAGLE-3 and its block head, whole trees of 16 nodes; drafting by the device's clock:",
    "auto": "The same, each merged with SUFFIX, by the policy; the last is what runs by default:",
    "answers": "`models/tiny`, JSON answers by a schema, all modes with the same grammar:",
    "written": "No-write-on-reject: bytes written to KV blocks, and time:",
}

ONE_B = "build/talon bench ranks --shape llama-1b --rows 1,4,16,64 --repeats 5"
RANKS = [
    Figure(
        "rank_times",
        [
            ONE_B + " --threads 2",
            f"mpirun -n 2 --bind-to none {ONE_B} --tensor-parallel 2 --threads 1",
        ],
        tables.rank_times,
        {"--shape": "tiny", "--repeats": "1"},
    ),
    Figure(
        "rank_sizes",
        [
            f"build/talon bench ranks --reckon --shape {shape}"
            for shape in ("llama-8b", "llama-70b", "llama-70b --weights int8", "gpt-oss-120b")
        ],
        tables.rank_sizes,
    ),
    Figure(
        "rank_memory",
        ["build/talon bench ranks --reckon --shape llama-70b-small"]
        + [
            f"mpirun -n {ranks} --oversubscribe --bind-to none build/talon bench ranks"
            f" --shape llama-70b-small --tensor-parallel {ranks} --threads 1 --rows 1 --repeats 1"
            for ranks in (2, 4, 8)
        ],
        tables.rank_memory,
    ),
]
FIGURES = {"cpu": CPU, "gpu": GPU, "ranks": RANKS}
