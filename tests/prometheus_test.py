"""A real Prometheus server scrapes `talon serve`, and knows what a request did."""

import json
import subprocess
import time
import urllib.parse
import urllib.request

from cli import TIMEOUT_S, TINY, CliTest, main, program, wait_for

SCRAPE_CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
  - job_name: talon
    static_configs: [{{targets: ["{address}"]}}]
"""


def fetch(url, body=None):
    request = urllib.request.Request(url, data=body and json.dumps(body).encode())
    if body:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.read().decode()


class PrometheusTest(CliTest):
    def start(self, name, command, listening):
        """Starts a server; the address in the first line of its output that matches."""
        log = self.path / f"{name}.log"
        with log.open("wb") as output:
            server = subprocess.Popen([str(part) for part in command], stdout=output,
                                      stderr=subprocess.STDOUT, cwd=self.path)
        self.addCleanup(self.stop, server)
        return wait_for(listening, lambda: log.read_text(errors="replace"), server)[1]

    @staticmethod
    def stop(server):
        server.terminate()
        try:
            server.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def setUp(self):
        super().setUp()
        address = self.start(
            "talon",
            [program(), "serve", "--model", TINY, "--port", 0, "--speculative-algorithm", "NGRAM",
             "--speculative-adaptive", "false"],
            r"listening on http://(127\.0\.0\.1:\d+)\n")
        self.address = address
        self.talon = f"http://{address}"

    def scrape(self):
        """Starts Prometheus, which is slow to start, and waits for its first scrape."""
        config = self.file("prometheus.yml", SCRAPE_CONFIG.format(address=self.address))
        self.prometheus = "http://" + self.start(
            "prometheus",
            ["prometheus", f"--config.file={config}", "--web.listen-address=127.0.0.1:0",
             f"--storage.tsdb.path={self.path / 'data'}"],
            # The two lines come in either order.
            r'(?s)^(?=.*Server is ready).*msg="Listening on" address=(127\.0\.0\.1:\d+)\n')
        self.assert_scraped('up{job="talon"}', 1)

    def complete(self, **options):
        """The usage of one finished completion of 24 tokens."""
        model = json.loads(fetch(f"{self.talon}/v1/models"))["data"][0]["id"]
        body = {"model": model, "prompt": "one two one two one two", "max_tokens": 24,
                "temperature": 0, "ignore_eos": True, **options}
        return json.loads(fetch(f"{self.talon}/v1/completions", body))["usage"]

    def query(self, expression):
        """Prometheus's answer: the value of a single series, None if there is none."""
        text = fetch(f"{self.prometheus}/api/v1/query?" +
                     urllib.parse.urlencode({"query": expression}))
        result = json.loads(text)["data"]["result"]
        self.assertLessEqual(len(result), 1, text)
        return float(result[0]["value"][1]) if result else None

    def assert_scraped(self, expression, expected):
        """Scrapes come twice a second and may fail, so the value may take a while to appear."""
        deadline = time.monotonic() + TIMEOUT_S
        value = self.query(expression)
        while value != expected and time.monotonic() < deadline:
            time.sleep(0.2)
            value = self.query(expression)
        self.assertEqual(value, expected, expression)

    def test_prometheus_knows_what_a_request_did(self):
        self.scrape()
        usage = self.complete()
        self.assertEqual(usage["completion_tokens"], 24)
        spec = usage["spec"]
        for expression, expected in {
                'talon_requests_total{finish_reason="length"}': 1,
                "talon_requests_running": 0,
                "talon_requests_waiting": 0,
                "talon_request_prompt_tokens_total": usage["prompt_tokens"],
                "talon_request_generated_tokens_total": 24,
                "talon_request_e2e_seconds_count": 1,
                "talon_request_queue_seconds_count": 1,
                "talon_request_ttft_seconds_count": 1,
                "talon_request_tpot_seconds_count": 1,
                "sum(talon_spec_verify_passes_total)": spec["passes"],
                "sum(talon_spec_draft_tokens_total)": spec["drafted"],
                "sum(talon_spec_accepted_tokens_total)": spec["accepted"],
                'talon_spec_accept_length_sum{drafter="NGRAM"}': 24,
                'talon_spec_accept_length_count{drafter="NGRAM"}': spec["passes"],
                'talon_spec_accept_length_bucket{drafter="NGRAM",le="+Inf"}': spec["passes"],
                "talon_spec_tree_nodes_sum": spec["passes"] + spec["drafted"],
                "sum(talon_spec_verify_seconds_count)": spec["passes"],
                'talon_kv_blocks{state="used"}': 0,
                "talon_kv_usage_ratio": 0,
        }.items():
            with self.subTest(expression):
                self.assert_scraped(expression, expected)
        self.assertGreater(spec["drafted"], 0)
        self.assert_scraped(
            "talon_request_e2e_seconds_sum > bool talon_request_ttft_seconds_sum", 1)

    def test_counters_add_up_over_requests(self):
        self.scrape()
        usages = [self.complete(), self.complete(speculative={"off": True})]
        for expression, expected in {
                "sum(talon_requests_total)": 2,
                "talon_request_generated_tokens_total": 48,
                "talon_request_prompt_tokens_total": sum(u["prompt_tokens"] for u in usages),
                'talon_spec_accept_length_sum{drafter="none"}': 24,
        }.items():
            with self.subTest(expression):
                self.assert_scraped(expression, expected)

    def test_the_format_is_clean(self):
        self.complete()
        text = fetch(f"{self.talon}/metrics")
        check = subprocess.run(["promtool", "check", "metrics"], input=text.encode(),
                               capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((check.returncode, check.stdout, check.stderr), (0, b"", b""))


if __name__ == "__main__":
    main()
