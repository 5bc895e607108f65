/** `npm run fuzz -- --count 10000 --seed 1 --sample 200`: runs the command with wrong inputs; exits with 1 if a case goes wrong. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { fuzzInputs } from './inputs.js';

const COMMAND = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '10000' },
    seed: { type: 'string', default: '1' },
    /** The number of messages that are printed, spread evenly over the cases. */
    sample: { type: 'string', default: '0' },
    /** The first case. */
    from: { type: 'string', default: '0' },
    /** The number of cases that run in a separate process. */
    commands: { type: 'string', default: '200' },
    log: { type: 'string' },
  },
});
const [count, sample, from, commands] = [values.count, values.sample, values.from, values.commands].map(Number);
const folder = mkdtempSync(join(tmpdir(), 'editrl-fuzz-'));
try {
  const every = commands === 0 ? Infinity : Math.ceil(count / commands);
  const { refused, complaints } = await fuzzInputs({
    root: resolve('.'),
    folder,
    seed: values.seed,
    numbers: Array.from({ length: count }, (_, i) => from + i),
    ...(Number.isFinite(every) ? { command: { file: COMMAND, every } } : {}),
    onCase: ({ number, argv, err, seconds }, wrong) => {
      if (values.log !== undefined) {
        appendFileSync(values.log, `${JSON.stringify({ number, seconds, argv, wrong, err })}\n`);
      }
      if (wrong !== null) console.error(`case ${number}: ${wrong}\n  ${argv.join(' ')}\n${err}`);
      else if (sample > 0 && (number - from) % Math.ceil(count / sample) === 0) {
        console.log(`case ${number}: ${argv.join(' ')}\n${err}`);
      }
    },
  });
  const megabytes = process.resourceUsage().maxRSS / 1024;
  console.log(
    `${count} cases, ${refused} refused, ${complaints.length} ended badly; ${megabytes.toFixed(0)} MB at most`,
  );
  process.exitCode = complaints.length === 0 ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true });
}
