"""The tables of docs/benchmarks.md, docs/gpu.md, docs/scale.md and README.md, from the JSON of
`talon bench`."""

import textwrap


TEXT_COLUMNS = {"mode", "selector", "accepted by depth", "of the matrix peak"}


def table(header, rows):
    """A Markdown table; the first column and TEXT_COLUMNS are text, the others are numbers."""
    marks = ["---" if i == 0 or name in TEXT_COLUMNS else "---:" for i, name in enumerate(header)]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(marks) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def times(value, digits=2):
    return f"{value:.{digits}f}x"


def percent(value):
    return f"{100 * value:.0f}%"


def number(value):
    """Three digits or all before the point: 4.05, 13.4, 175, 1046."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}"


def size(count):
    """Bytes in decimal units: 2.3 GB."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def prompts_name(result):
    return result["prompts"].split("/")[-1].removesuffix(".jsonl")


def printed(results):
    """What a command prints, as a code block of 100 columns."""
    lines = []
    for line in "".join(results).strip().splitlines():
        lines += [line] if len(line) <= 100 else textwrap.wrap(line, 100)
    return "\n".join(["```", *lines, "```"]) + "\n"


# ---- CPU ----


def speculation(results):
    rows = []
    for result in results:
        for mode in result["modes"]:
            is_plain = mode["mode"] == "plain"
            rows.append(
                [
                    f"{prompts_name(result)} ({result['num_prompts']})" if is_plain else "",
                    mode["mode"],
                    number(mode["tokens_per_second"]),
                    times(mode["ratio_to_plain"]),
                    "" if is_plain else times(mode["worst_prompt_ratio"]),
                    f"{mode['tau']:.2f}",
                    "" if is_plain else percent(mode["draft_share"]),
                    "yes" if mode["identical"] else percent(mode["same_tokens"]),
                ]
            )
    return table(
        ["prompts", "mode", "tokens/s", "vs plain", "worst", "tau", "drafting", "same text"], rows
    )


def json_answers(results):
    """Answers that must match a schema; plain decoding has the same grammar."""
    rows = []
    for mode in results[0]["modes"]:
        rows.append(
            [
                mode["mode"],
                number(mode["tokens_per_second"]),
                times(mode["ratio_to_plain"]),
                f"{mode['tau']:.2f}",
                percent(mode["forced_share"]),
                "yes" if mode["identical"] else percent(mode["same_tokens"]),
            ]
        )
    return table(["mode", "tokens/s", "vs plain", "tau", "forced", "same text"], rows)


def grammar(results):
    """Verdicts and times of `bench grammar`, a row for each result."""
    rows = []
    for result in results:
        mask, compile_time = result["mask_us"], result["compile_ms"]
        rows.append(
            [
                number(result["vocabulary"]),
                f"{result['compiled']} of {result['schemas']}",
                f"{result['valid_refused']} of {result['instances']}",
                str(result["invalid_accepted"]),
                f"{mask['mean']:.1f}",
                f"{mask['p99']:.0f}",
                f"{compile_time['mean']:.2f}",
            ]
        )
    header = ["vocabulary", "schemas compiled", "valid instances refused", "invalid accepted"]
    return table(header + ["mask, us: mean", "p99", "compile, ms: mean"], rows)


def front(results):
    """The front page's: a row for each kind of prompts and mode."""
    rows = []
    for result in results:
        for mode in result["modes"]:
            rows.append(
                [
                    prompts_name(result) if mode is result["modes"][0] else "",
                    mode["mode"],
                    number(mode["tokens_per_second"]),
                    times(mode["ratio_to_plain"]),
                    f"{mode['tau']:.2f}",
                ]
            )
    return table(["prompts", "mode", "tokens/s", "vs plain", "tau"], rows)


def tasks_variant(result):
    """Weights, or the tokens that SpecPV retrieves."""
    if not result["specpv"]:
        return "bf16" if result["weights"] == "auto" else result["weights"]
    return f"SpecPV {result['specpv']['mode']} {result['specpv']['retrieval_tokens']}"


def tasks(results):
    """Task accuracy by kind of task, a column for each variant; kinds of the first one."""

    def cell(result, kind):
        found = [row for row in result["kinds"] + [result["all"]] if row["kind"] == kind]
        is_part = kind == "all" and len(result["kinds"]) < len(results[0]["kinds"])
        return "" if is_part or not found else f"{found[0]['right']} of {found[0]['items']}"

    kinds = [row["kind"] for row in results[0]["kinds"]] + ["all"]
    rows = [[kind, *(cell(result, kind) for result in results)] for kind in kinds]
    return table(["kind", *(tasks_variant(result) for result in results)], rows)


def eagle3(results):
    rows = []
    for result in results:
        head = next(mode for mode in result["modes"] if mode["mode"] != "plain")
        depths = " ".join(f"{share:.2f}" for share in head["acceptance_by_depth"])
        rows.append(
            [
                prompts_name(result),
                f"{result['temperature']:.1f}",
                f"{head['tau']:.2f}",
                depths,
                times(head["ratio_to_plain"]),
                percent(head["draft_share"]),
            ]
        )
    header = ["prompts", "temperature", "tau", "accepted by depth", "vs plain", "drafting"]
    return table(header, rows)


def longcontext(results):
    rows = []
    for context in results[0]["contexts"]:
        for i, row in enumerate(context["rows"]):
            is_partial = row["budget"] > 0
            has_steps = row["partial"]["steps"] > 0
            rows.append(
                [
                    context["context"] if i == 0 else "",
                    row["mode"],
                    number(row["tokens_per_second"]),
                    times(row["ratio_to_plain"]),
                    times(row["ratio_to_full"]) if is_partial and row["ratio_to_full"] else "",
                    f"{row['tau']:.2f}",
                    number(row["kv_bytes_read_per_step"] / 1e6),
                    number(row["partial"]["ms"]) if has_steps else "",
                    row["rolled_back_tokens"] if is_partial else "",
                    "yes" if row["identical"] else "no",
                ]
            )
    header = ["context", "mode", "tokens/s", "vs plain", "vs full KV", "tau", "K/V MB per step"]
    return table(header + ["ms per partial step", "rolled back", "same text"], rows)


def agreement(results):
    """Partial passes beside full ones, by selector, budget and distance from the last full one."""
    result = results[0]
    rows, distances = [], []
    for context in result["contexts"]:
        for row in context["rows"]:
            shares = {
                each["distance"]: 1 - each["disagreed"] / each["checked"]
                for each in row["distances"]
            }
            distances = distances or sorted(shares)
            is_first = row is context["rows"][0]
            rows.append(
                [
                    context["context"] if is_first else "",
                    row["selector"],
                    row["budget"],
                    *(f"{100 * shares[at]:.1f}" if at in shares else "" for at in distances),
                    f"{100 * (1 - row['disagreed'] / row['checked']):.1f}",
                    f"{row['confirmed_of_trunk']:.1f}",
                ]
            )
    header = ["context", "selector", "budget", *(f"from {at}" for at in distances)]
    return table(header + ["all, %", f"kept of {result['trunk']}"], rows)


def recall(results):
    """Right answers by selector, budget and length, full verification first."""
    rows = []
    for result in results:
        for row in result["recall"]:
            is_full = row["budget"] == 0
            if is_full and result is not results[0]:
                continue
            cells = [f"{bucket['right']} of {bucket['prompts']}" for bucket in row["buckets"]]
            name = "full" if is_full else result["specpv"]["selector"]
            rows.append([name, "" if is_full else row["budget"], *cells])
    lengths = [bucket["tokens"] for bucket in results[0]["recall"][0]["buckets"]]
    return table(["selector", "budget", *(f"{length} tokens" for length in lengths)], rows)


def batches(results):
    header = ["text", "drafter", "batch", "off t/s", "on t/s", "adaptive t/s", "adaptive / off"]
    rows = []
    for result in results:
        text = prompts_name(result)
        text += f", {result['temperature']:g}" if result["temperature"] > 0 else ", greedy"
        for row in result["batches"]:
            rows.append(
                [
                    text,
                    result["drafter"],
                    row["batch"],
                    number(row["off"]),
                    number(row["on"]),
                    number(row["adaptive"]),
                    times(row["adaptive_to_off"]),
                    times(row["adaptive_to_best"]),
                ]
            )
    return table(header + ["adaptive / best"], rows)


def load(results):
    result = results[0]
    alone = result["alone"]["tokens_per_second"]
    rows = []
    for clients, report in ((1, result["alone"]), (result["clients"], result["load"])):
        rows.append(
            [
                clients,
                number(report["tokens_per_second"]),
                times(report["tokens_per_second"] / alone),
                f"{1e3 * report['ttft_p50_seconds']:.0f}",
                f"{1e3 * report['ttft_p99_seconds']:.0f}",
                report["finished"],
                report["left"],
                report["errors"],
            ]
        )
    header = ["clients", "tokens/s", "of one", "first token p50 ms", "p99 ms", "answers", "cut"]
    return table(header + ["errors"], rows)


def remote(results):
    rows = []
    for link in results[0]["links"]:
        rates = link["tokens_per_second"]
        plain = rates["plain"]
        rows.append(
            [link["link"], number(plain)]
            + [times(rate / plain) for name, rate in rates.items() if name != "plain"]
            + [percent(link["draft_time_hidden"]), f"{link['hit_rate']:.2f}"]
            + ["yes" if link["identical"] else "no"]
        )
    names = [name for name in results[0]["links"][0]["tokens_per_second"] if name != "plain"]
    header = ["round trip", "plain, tokens/s", *names, "hidden", "hit rate", "same text"]
    return table(header, rows)


def verify(results):
    points = results[0]["points"]
    depths = sorted({point["depth"] for point in points})
    header = ["T"]
    for depth in depths:
        header += [f"at {depth} tokens", "c(T)", "time / floor"]
    rows = []
    for nodes in sorted({point["nodes"] for point in points}):
        row = [nodes]
        for depth in depths:
            point = next(p for p in points if (p["nodes"], p["depth"]) == (nodes, depth))
            ms, floor = point["milliseconds"], point.get("floor_milliseconds")
            row += [number(ms), f"{point['c']:.2f}", times(ms / floor) if floor else ""]
        rows.append(row)
    return table(header, rows)


def scv(results):
    points = results[0]["points"]
    chains = sorted({point["chain"] for point in points})
    rows = []
    for acceptance in sorted({point["acceptance"] for point in points}):
        row = [f"{acceptance:.1f}"]
        for chain in chains:
            of = [p for p in points if (p["chain"], p["acceptance"]) == (chain, acceptance)]
            whole = next(p for p in of if p["chunk"] == 0)
            best = min(of, key=lambda p: p["ms_per_token"])
            gain = times(whole["ms_per_token"] / best["ms_per_token"])
            row.append(f"{best['chunk']}: {gain}" if best["chunk"] else "one pass")
        rows.append(row)
    return table(["acceptance"] + [f"chain of {chain}" for chain in chains], rows)


def nwor(results):
    """Rows of one batch and tree size stand together; changes are against the first mode."""
    rows, last = [], None
    for row in results[0]["rows"]:
        place = (row["batch"], row["nodes"])
        first = row["mode"] == results[0]["rows"][0]["mode"]
        rows.append(
            [
                f"{place[0]} x {place[1]}" if place != last else "",
                row["mode"],
                f"{row['reached']:.2f}",
                size(row["block_bytes_per_token"]),
                "" if first else f"{100 * (row['block_bytes_ratio'] - 1):+.0f}%",
                size(row["bytes_per_token"]),
                "" if first else f"{100 * (row['bytes_ratio'] - 1):+.0f}%",
                number(row["bytes_per_second"] / 1e6),
                number(row["ms_per_token"]),
                "" if first else times(row["time_ratio"]),
            ]
        )
        last = place
    header = ["batch x nodes", "mode", "accepted", "to blocks", "change", "in all", "change"]
    return table(header + ["MB/s", "ms/token", "time"], rows)


def limits(results):
    rows = []
    for result in results:
        is_int = result["weights"].startswith("int")
        peak = result["int8_peak_gops"] if is_int else result["bf16_peak_gflops"]
        share = percent(result["prompt_gflops"] / peak)
        rows.append(
            [
                result["weights"],
                number(result["generation_tokens_per_second"]),
                percent(result["bandwidth_share"]),
                number(result["prompt_tokens_per_second"]),
                f"{share} of {'int8' if is_int else 'bf16'}",
                size(result["peak_memory_bytes"]),
            ]
        )
    last = results[-1]
    note = (
        f"\nMeasured peaks: {last['bandwidth_gb_per_second']:.0f} GB/s read, "
        f"{last['int8_peak_gops']:.0f} GOP/s int8, {last['bf16_peak_gflops']:.0f} GFLOP/s bf16.\n"
    )
    header = ["weights", "generation, tokens/s", "of the bandwidth", "prompt, tokens/s"]
    return table(header + ["of the matrix peak", "peak memory"], rows) + note


def ops(results):
    result = results[0]
    rows = [
        [
            op["op"],
            op["rows"],
            number(op["microseconds"]),
            number(op["gb_per_second"]),
            number(op["gflops"]),
            percent(op["share"]),
        ]
        for op in result["ops"]
        if op["gflops"] > 0
    ]
    return table(["op", "rows", "us", "GB/s", "GFLOP/s", "of the nearer peak"], rows)


# ---- Ranks ----


def rank_times(results):
    """One process with all threads, then several with one thread each."""
    alone, shared = results
    rows = []
    for before, after in zip(alone["passes"], shared["passes"]):
        rows.append(
            [
                f"pass of {after['rows']} row" + ("s" if after["rows"] > 1 else ""),
                number(before["milliseconds"]),
                number(after["milliseconds"]),
                times(after["milliseconds"] / before["milliseconds"]),
                number(after["exchange_milliseconds"]),
                f"{100 * after['exchange_milliseconds'] / after['milliseconds']:.1f}%",
                str(after["messages"]),
                size(after["bytes"]),
            ]
        )
    tokens = [result["token_milliseconds"] for result in results]
    rows.insert(
        0, ["token of plain decoding", *map(number, tokens), times(tokens[1] / tokens[0])] + [""] * 4
    )
    threads = f"1 process x {alone['threads']}, ms"
    ranks = f"{shared['ranks']} ranks x {shared['threads']}, ms"
    header = ["", threads, ranks, "ratio", "exchanges, ms", "share", "messages", "received"]
    return table(header, rows)


def rank_sizes(results):
    """Weights of a rank by model and number of ranks, by the sizes of the tensors."""
    rows = []
    for result in results:
        reckoned = {memory["ranks"]: memory for memory in result["reckoned"]}
        weights = "" if result["weights"] == "auto" else f", {result['weights']}"
        kv = reckoned[1]["kv_bytes_per_token"] / 1024
        sizes = [number(reckoned[ranks]["weight_bytes"] / 1e9) for ranks in (1, 2, 4, 8)]
        rows.append([result["model"] + weights, *sizes, f"{kv:.0f} KiB"])
    kv = "K and V per token, of all ranks together"
    return table(["model", "1 rank, GB", "2", "4", "8", kv], rows)


def rank_memory(results):
    """Memory of a rank as reckoned, and the most that one of them has allocated."""
    reckoned, *measured = results
    allocated = {result["ranks"]: result["allocated"] for result in measured}
    rows = []
    for memory in reckoned["reckoned"]:
        ranks = allocated.get(memory["ranks"])
        if not ranks:
            continue
        rows.append(
            [
                str(memory["ranks"]),
                number(memory["weight_bytes"] / 1e6),
                number(max(rank["weight_bytes"] for rank in ranks) / 1e6),
                f"{memory['kv_bytes_per_token']:.0f}",
                f"{max(rank['kv_bytes'] / rank['kv_tokens'] for rank in ranks):.0f}",
            ]
        )
    header = ["ranks", "weights, MB", "allocated", "K and V per token, bytes", "allocated"]
    return table(header, rows)
