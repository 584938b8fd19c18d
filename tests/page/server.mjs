// Starts the program as a server, for a test.

import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';

const DEADLINE_MS = 300000;

export class Server {
  // Resolves once the server listens.
  static async start(program, ...flags) {
    const server = new Server();
    server.output = '';
    server.process = spawn(
        program, ['serve', '--port', '0', ...flags], {stdio: ['ignore', 'pipe', 'pipe']});
    server.exited = new Promise((resolve) => server.process.once('exit', resolve));
    server.origin = await server.address();
    return server;
  }

  // From the line that the program prints.
  address() {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => fail('did not listen in time'), DEADLINE_MS);
      const fail = (why) => {
        clearTimeout(timer);
        reject(new Error(`talon serve ${why}; it printed:\n${this.output}`));
      };
      const read = (data) => {
        this.output += data;
        const match = this.output.match(/listening on (http:\/\/[\d.]+:\d+)\n/);
        if (!match) return;
        clearTimeout(timer);
        resolve(match[1]);
      };
      this.process.stdout.on('data', read);
      this.process.stderr.on('data', read);
      this.exited.then((code) => fail(`ended with ${code}`));
    });
  }

  async post(path, body) {
    const response = await fetch(this.origin + path, {
      method: 'POST',
      headers: {'Content-Type': 'application/json'},
      body: JSON.stringify(body),
    });
    assert.equal(response.status, 200, await response.clone().text());
    return response.json();
  }

  // Asks it to end, as a service manager would.
  async stop() {
    this.process.kill('SIGTERM');
    assert.equal(await this.exited, 0, `exit code of talon serve; it printed:\n${this.output}`);
  }
}
