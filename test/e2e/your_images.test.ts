/** docs/tutorial/your-images.md followed to the letter: its files written, its commands called, in its order. */
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { decodeNpz } from '../../src/data/npz.js';
import { testFolder } from '../support/folder.js';
import { ROOT, type Ended } from './editrl.js';

const page = readFileSync(join(ROOT, 'docs/tutorial/your-images.md'), 'utf8');

/** A block of the page: commands, or a file by its name. */
type Block = { readonly commands: string } | { readonly file: string; readonly content: string };

const blocks = [...page.matchAll(/^```(\w+) ?(\S*)\n(.*?)^```$/gms)].flatMap(([, language, file, content]): Block[] => {
  if (language === 'sh') return [{ commands: content }];
  return file === '' ? [] : [{ file, content }];
});

const place = testFolder('own-experiment');
symlinkSync(join(ROOT, 'configs'), join(place, 'configs'));

const COLORS: Readonly<Record<string, readonly [number, number, number]>> = {
  red: [200, 30, 30],
  blue: [30, 30, 200],
  green: [30, 150, 30],
  grey: [120, 120, 120],
};
const painted = ['red', 'blue', 'green'];

/** A cup of a color on a white table, as a JPEG with the aspect ratio of a camera. */
async function makeImage(file: string, color: readonly number[], number: number): Promise<void> {
  const [width, height] = [80, 60];
  const [left, top] = [15 + ((number * 13) % 30), 5 + ((number * 7) % 25)];
  const data = new Uint8Array(width * height * 3).fill(235);
  for (let y = top; y < top + 25; y++) {
    for (let x = left; x < left + 20; x++) data.set(color, (y * width + x) * 3);
  }
  mkdirSync(dirname(file), { recursive: true });
  await sharp(data, { raw: { width, height, channels: 3 } })
    .jpeg()
    .toFile(file);
}

/** The images that the lines of the page name, and more lines of the same form. */
async function makeOwnImages(file: string): Promise<void> {
  for (let i = 4; i < 34; i++) {
    const [source, color] = [`images/cup_${String(i).padStart(2, '0')}`, painted[i % 3]];
    const line = { source: `${source}.jpg`, instruction: `paint the cup ${color}`, edited: `${source}_${color}.jpg` };
    appendFileSync(file, `${JSON.stringify(i % 5 === 0 ? { ...line, split: 'validation' } : line)}\n`);
  }
  const names = readFileSync(file, 'utf8').matchAll(/images\/cup_(\d+)(?:_(\w+))?\.jpg/g);
  for (const [path, number, color = 'grey'] of names) {
    await makeImage(join(dirname(file), path), COLORS[color], Number(number));
  }
}

/** A line of the page, as a shell in that folder would take it, without settings of whoever runs the test. */
function call(command: string): Promise<Ended> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('APP__')));
  const editrl = `editrl() { '${process.execPath}' '${ROOT}/dist/src/cli/main.js' "$@"; }`;
  const child = spawn('bash', ['-c', `${editrl}\n${command}`], { cwd: place, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const text = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text.out += chunk));
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text.err += chunk));
  return new Promise((done, fail) => {
    child.once('error', fail);
    child.once('close', (code, signal) => done({ code, signal, ...text }));
  });
}

const printed = new Map<string, string>();

describe('docs/tutorial/your-images.md', () => {
  for (const block of blocks) {
    if ('file' in block) {
      it(`has the file ${block.file}`, async () => {
        const path = join(place, block.file);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, block.content);
        if (block.file.endsWith('.jsonl')) await makeOwnImages(path);
      });
      continue;
    }
    for (const command of block.commands.trim().split('\n')) {
      it(
        command,
        async () => {
          const { code, out, err } = await call(command);
          expect({ code, err, out }).toMatchObject({ code: 0, err: '' });
          printed.set(command, out);
        },
        600_000,
      );
    }
  }

  it('had every kind of step', () => {
    const verbs = [...printed.keys()].map((command) => command.split(' ').slice(1, 3).join(' '));
    const steps = ['data pack', 'data check', 'config diff', 'report own_rl'];
    expect(verbs).toEqual(expect.arrayContaining(steps));
    for (const verb of ['run', 'plan', 'sweep', 'check', 'ls']) expect(verbs.join('\n')).toContain(`${verb} `.trim());
  });

  it('ends with what it promises', () => {
    const report = JSON.parse(printed.get('editrl report own_rl --json') ?? '{}') as unknown;
    expect(report).toMatchObject({
      run_name: 'own_rl',
      state: 'finished',
      heldout: { before: expect.any(Number) as number, after: expect.any(Number) as number },
    });
    for (const file of ['own_rl/contact_sheet.png', 'own_rl/curve.png', 'own_kl.results.md']) {
      expect(page).toContain(`runs/${file}`);
      expect(existsSync(join(place, 'runs', file))).toBe(true);
    }
    expect(printed.get('editrl config diff own_sft own_rl')).toContain('algorithm.type');
    expect(printed.get('editrl config diff own_rl own/own_rl.jsonnet --set algorithm.kl_coeff=0')).toMatch(
      /algorithm\.kl_coeff +0\.0003 +0 +result$/m,
    );
  });

  it('lists every field of a sample, and every file of a dataset', () => {
    const sample = decodeNpz(readFileSync(join(place, 'data/own/train/samples/000000.npz')), 'sample');
    const fields = page.match(/^\| `\w+` +\| (?:uint8|int32) /gm)?.map((row) => /`(\w+)`/.exec(row)?.[1]);
    expect(fields).toEqual(expect.arrayContaining([...sample.keys()]));
    for (const [path] of page.matchAll(/^data\/own\/\S+(?:json|npz)\b/gm)) {
      expect(existsSync(join(place, path)), path).toBe(true);
    }
  });
});
