"""Markdown tables of the GPU's figures, from the JSON of the benchmarks."""

from figure_tables import number, percent, prompts_name, table, times


def gpu_nodes(results):
    rows = []
    one = {p["context"]: p["milliseconds"] for p in results[0]["by_nodes"] if p["nodes"] == 1}
    for point in results[0]["by_nodes"]:
        ms = point["milliseconds"]
        rows.append(
            [
                point["context"],
                point["nodes"],
                number(ms),
                times(ms / point["floor_milliseconds"]),
                times(ms / one[point["context"]]) if point["context"] in one else "",
            ]
        )
    return table(["context", "nodes", "ms", "time / floor", "of one token"], rows)


def gpu_sequences(results):
    rows = []
    for point in results[0]["by_sequences"]:
        ms = point["milliseconds"]
        rows.append(
            [
                point["sequences"],
                number(ms),
                times(ms / point["floor_milliseconds"]),
                number(1e3 * point["sequences"] / ms),
            ]
        )
    return table(["sequences", "ms", "time / floor", "tokens/s"], rows)


def gpu_weights(results):
    """Passes by the format of the weights; the first row of each has the speed of prompts."""
    prompts = {r["weights"]: r["prompt_tokens_per_second"] for r in results if "by_nodes" not in r}
    passes = [r for r in results if "by_nodes" in r]
    plain = {p["nodes"]: p["milliseconds"] for p in passes[0]["by_nodes"]}
    rows = []
    for result in passes:
        weights = result["weights"]
        one = next(p["milliseconds"] for p in result["by_nodes"] if p["nodes"] == 1)
        for point in result["by_nodes"]:
            ms, nodes = point["milliseconds"], point["nodes"]
            first = nodes == 1
            rows.append(
                [
                    weights if first else "",
                    nodes,
                    number(ms),
                    times(ms / point["floor_milliseconds"]),
                    times(ms / one),
                    times(plain[nodes] / ms),
                    number(prompts[weights]) if first else "",
                    times(prompts[weights] / prompts[passes[0]["weights"]]) if first else "",
                ]
            )
    header = ["weights", "nodes", "ms", "time / floor", "of one token", "bf16 / this", "prompt t/s", "of bf16"]
    return table(header, rows)


def gpu_partial(results):
    """Steps over a partial view beside the same steps over the whole prefix."""
    result = results[0]
    rows = []
    for key in ("partial", "batch"):
        points = result.get(key, [])
        for whole, partial in zip(points[0::2], points[1::2]):
            rows.append(
                [
                    whole["sequences"],
                    whole["context"],
                    whole["nodes"],
                    number(whole["milliseconds"]),
                    number(partial["milliseconds"]),
                    times(whole["milliseconds"] / partial["milliseconds"], 1),
                ]
            )
    header = ["sequences", "context", "nodes", "whole prefix, ms", "partial, ms", "whole / partial"]
    return table(header, rows)


def gpu_offload(results):
    result = results[0]
    rows = [
        ["chosen blocks copied to the GPU", number(result["offload"][0]["milliseconds"])],
        ["read in place", number(result["offload_in_place_milliseconds"])],
        ["the copy, once per full pass", number(result["offload_copy_milliseconds"])],
    ]
    return table(["K and V in host memory", "ms"], rows)


def gpu_prompts(results):
    rows = []
    for result in results:
        rate, peak = result["prompt_gflops"], result["bf16_peak_gflops"]
        rows.append(
            [
                f"{result['prompt_tokens']}",
                number(result["prompt_tokens_per_second"]),
                f"{1e3 * result['first_token_seconds']:.0f}",
                f"{rate / 1e3:.0f}",
                f"{peak / 1e3:.0f}",
                percent(rate / peak),
            ]
        )
    header = ["prompt", "tokens/s", "first token, ms", "TFLOP/s", "peak", "share"]
    return table(header, rows)


def gpu_decode(results):
    rows = []
    for result in results:
        for mode in result["modes"]:
            steps = mode.get("steps", {})
            idle = steps.get("idle_share", -1)
            rows.append(
                [
                    mode["mode"],
                    number(mode["tokens_per_second"]),
                    times(mode["ratio_to_plain"]),
                    f"{mode['tau']:.2f}",
                    "all" if mode["identical"] else percent(mode["same_tokens"]),
                    percent(idle) if idle >= 0 else "",
                ]
            )
    header = ["mode", "tokens/s", "vs plain", "tau", "same tokens", "device idle"]
    return table(header, rows)


def gpu_heads(results):
    rows = []
    for result in results:
        for mode in result["modes"]:
            steps = mode.get("steps", {})  # some: their times together
            each = 1e6 / steps.get("steps", 1)
            draft = sum(s["device_seconds"] for s in steps.get("stages", []) if s["stage"] == "Propose")
            rows.append(
                [
                    prompts_name(result),
                    f"{result['temperature']:g}",
                    mode["mode"],
                    f"{mode['tau']:.2f}",
                    number(each * draft) if draft > 0 else "",
                    number(each * steps["seconds"]) if steps else "",
                    number(mode["tokens_per_second"]),
                    times(mode["ratio_to_plain"]),
                    "yes" if mode["identical"] else "no",
                ]
            )
    header = ["prompts", "temperature", "mode", "tau", "drafting, us", "step, us", "tokens/s"]
    return table(header + ["vs plain", "same text"], rows)


def gpu_policy(results):
    rows = []
    for result in results:
        for row in result["rows"]:
            rows.append(
                [
                    result["model"].split()[0],
                    row["batch"],
                    number(row["plain_tokens_per_second"]),
                    number(row["tokens_per_second"]),
                    times(row["speed_up"]),
                    f"{row['tau']:.2f}",
                    f"{row['nodes']:.1f}",
                    number(row["plain_step_milliseconds"]),
                    number(row["step_milliseconds"]),
                ]
            )
    header = ["shape", "batch", "plain t/s", "t/s", "speed-up", "tau", "nodes", "plain ms", "step ms"]
    return table(header, rows)


def gpu_experts(results):
    rows = []
    for result in results:
        one = next(p["milliseconds"] for p in result["by_nodes"] if p["nodes"] == 1)
        for point in result["by_nodes"]:
            ms = point["milliseconds"]
            rows.append(
                [
                    result["model"].split()[0],
                    point["nodes"],
                    number(ms),
                    times(ms / point["floor_milliseconds"]),
                    times(ms / one),
                ]
            )
    return table(["shape", "nodes", "ms", "time / floor", "of one token"], rows)


def gpu_specpv(results):
    """Plain decoding, drafts over the whole prefix, and SpecPV's modes."""
    rows = []
    for result in results:
        for row in result["rows"]:
            rows.append(
                [
                    row["context"],
                    row["batch"],
                    "host" if result["kv_offload"] else "GPU",
                    number(row["plain_tokens_per_second"]),
                    number(row["tokens_per_second"]),
                    number(row["exact_tokens_per_second"]),
                    number(row["fast_tokens_per_second"]),
                    times(row["exact_to_plain"]),
                    times(row["exact_to_full"]),
                    times(row["fast_to_full"]),
                    percent(row["confirmed_share"]),
                ]
            )
    header = ["context", "batch", "K and V", "plain t/s", "full KV t/s", "exact t/s", "fast t/s"]
    return table(header + ["exact / plain", "exact / full", "fast / full", "kept"], rows)


def gpu_simulate(results):
    rows = []
    for result in results:
        for row in result["rows"]:
            rows.append(
                [
                    f"{result['nodes']} nodes, {result['depth']} levels",
                    row["batch"],
                    number(row["plain_tokens_per_second"]),
                    f"{100 * row['plain_idle_share']:.1f}%",
                    number(row["tokens_per_second"]),
                    times(row["speed_up"]),
                    f"{row['tau']:.2f}",
                    number(row["step_milliseconds"]),
                    percent(row["draft_share"]),
                    f"{100 * row['idle_share']:.1f}%",
                ]
            )
    header = ["tree", "batch", "plain t/s", "idle", "t/s", "speed-up", "tau", "step ms", "drafting"]
    header.append("idle")
    return table(header, rows)
