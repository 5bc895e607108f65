/** Wrong inputs: configs, overlays, experiments and command lines that are derived from valid ones by rules. */
import type { RandomStream } from '../../src/core/random.js';

type Random = RandomStream;
/** A piece of Jsonnet text. */
type Write = (random: Random) => string;

const strangeNumbers = ['-1', '0', '0.5', '1e300', '-1e300', '9007199254740993', '4294967296', '1e-320', '1/0', '0/0'];
const strangeTexts = [
  '',
  ' ',
  '../../etc',
  '/',
  '~',
  '__proto__',
  'constructor',
  'a\u0000b',
  '\u001b[31mred',
  '\ud83d\ude00',
  '\ud800',
  'x'.repeat(300),
  'line\nbreak',
  '%s {} ${x}',
  'null',
  'NaN',
  '-1',
  '1e999',
  'http://',
  'http://user:word@host:99999/v1',
  'cuda:99',
] as const;

/** Values that no key expects. */
const values: readonly Write[] = [
  (random) => random.pick(strangeNumbers.slice(0, 8)),
  (random) => JSON.stringify(random.pick(strangeTexts)),
  () => 'null',
  () => 'true',
  () => '[]',
  () => '{}',
  () => '[[1], {"a": null}]',
  () => '{"run": 3, "config": []}',
  () => '{"__proto__": {"seed": 1}}',
  () => '{"hub": "a/b", "revision": 7}',
  (random) => `{"run": "x", "config": ${JSON.stringify(random.pick(strangeTexts))}}`,
  (random) => `[${Array.from({ length: random.integer(40) }, () => '0').join(',')}]`,
  (random) => '['.repeat(1 + random.integer(60)) + ']'.repeat(60),
];

/** Jsonnet that cannot be evaluated, or only beyond the limits. */
const failures: readonly Write[] = [
  () => "error 'mine'",
  () => 'error { a: 1 }',
  () => 'self.nothing',
  () => 'super.nothing',
  () => '$.nothing.more',
  (random) => random.pick(strangeNumbers),
  () => '1 + {}',
  () => '{} + 1',
  () => 'std.parseInt("x")',
  () => 'std.extVar("NOTHING")',
  () => 'std.extVar("APP__NOTHING")',
  () => 'std.native("nothing")(1)',
  () => 'function(x) x',
  () => '(function(x) x)()',
  () => 'std.nothing(1)',
  () => 'assert false; 1',
  () => '{ assert false : "said", a: 1 }',
  () => '[1, 2][7]',
  () => '"x" % [1, 2]',
  () => '{ ["a"]: 1, ["a"]: 2 }',
  () => '{ [null]: 1, [3]: 2 }',
  () => 'local a = b; a',
  () => 'local a = a; a',
  () => '{ a: self.b, b: self.a }.a',
  () => "import '.'",
  () => "importstr '..'",
  () => "import '/dev/null'",
  () => "import 'nothing.libsonnet'",
  () => "importstr 'bytes.libsonnet'",
  () => "import 'bytes.libsonnet'",
  () => "import 'cycle_a.libsonnet'",
  () => 'std.repeat("x", 1000000)',
  (random) => '['.repeat(100 + random.integer(3000)) + ']'.repeat(100),
  (random) => `(${'('.repeat(random.integer(2000))}1)`,
  () => 'std.foldl(function(o, i) { a: o }, std.range(1, 3000), {})',
  () => 'std.strReplace("x", "", "y")',
  () => '|||\n  text\n|||',
  () => '"unterminated',
  () => '/* no end',
];

const word = /[A-Za-z_][A-Za-z_0-9]*/g;
const token = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\d[\d.eE-]*|[^\s]/g;

type Mutate = (text: string, random: Random) => string;

function atOne(pattern: RegExp, replace: (found: string, random: Random) => string): Mutate {
  return (text, random) => {
    const found = [...text.matchAll(pattern)];
    if (found.length === 0) return text;
    const { 0: old, index } = random.pick(found);
    return text.slice(0, index) + replace(old, random) + text.slice(index + old.length);
  };
}

function misspelt(name: string, random: Random): string {
  const at = random.integer(name.length);
  return random.pick([
    name.slice(0, at) + name.slice(at + 1),
    name.slice(0, at) + name[at] + name.slice(at),
    `${name}s`,
    name.toUpperCase(),
    `${name.slice(0, at)}_${name.slice(at)}`,
    '__proto__',
    'toString',
  ]);
}

/** Changes to the text of a Jsonnet file. */
const textMutations: readonly Mutate[] = [
  atOne(token, () => ''),
  atOne(token, (old) => `${old} ${old}`),
  atOne(word, misspelt),
  atOne(word, misspelt),
  atOne(/(?<=: )[^,{}[\]\n]+(?=,)/g, (_, random) => random.pick(values)(random)),
  atOne(/(?<=: )[^,{}[\]\n]+(?=,)/g, (_, random) => random.pick(failures)(random)),
  atOne(/(?<=: )[^,{}[\]\n]+(?=,)/g, (_, random) => random.pick(failures)(random)),
  atOne(/'[^'\n]*'|"[^"\n]*"/g, (_, random) => JSON.stringify(random.pick(strangeTexts))),
  atOne(/\b\d[\d.e-]*\b/g, (_, random) => random.pick(strangeNumbers)),
  atOne(/\n[^\n]*/g, () => ''),
  atOne(/[:+,{}[\]()]/g, (_, random) => random.pick([...':+,{}[]()!%?@\u0000'])),
  (text, random) => text.slice(0, random.integer(text.length + 1)),
  (text, random) => `${text} + ${random.pick(failures)(random)}`,
  (text, random) =>
    `${text} + { ${random.pick(['a', 'seed', 'reward', 'algorithm', 'policy', 'launch'])}: ${random.pick(values)(random)} }`,
  () => '',
];

export function wrongText(text: string, random: Random): string {
  let changed = text;
  for (let left = 1 + random.integer(3); left > 0; left--) changed = random.pick(textMutations)(changed, random);
  return changed;
}

/** Dotted paths of all fields of a value, without the elements of lists. */
export function pathsOf(value: unknown, prefix = ''): string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [];
  return Object.entries(value).flatMap(([key, child]) => [`${prefix}${key}`, ...pathsOf(child, `${prefix}${key}.`)]);
}

/** An overlay that sets one to three of these paths wrongly. */
export function wrongOverlay(paths: readonly string[], random: Random): string {
  const one = (): string => {
    const path = random.pick(paths).split('.');
    if (random.integer(3) === 0) path[random.integer(path.length)] = misspelt(path[path.length - 1], random);
    const value = random.pick(random.integer(4) === 0 ? failures : values)(random);
    const open = path.slice(0, -1).map((key) => `${JSON.stringify(key)}+: { `);
    return `{ ${open.join('')}${JSON.stringify(path[path.length - 1])}: ${value} ${open.map(() => '} ').join('')}}`;
  };
  return Array.from({ length: 1 + random.integer(3) }, one).join(' + ');
}

/** A `--set` with a wrong key, form or value. */
export function wrongSet(paths: readonly string[], random: Random): string {
  const path = random.pick(paths);
  const key = random.integer(3) === 0 ? path.replace(/[^.]+$/, (name) => misspelt(name, random)) : path;
  const text = random.integer(2) === 0 ? random.pick(values)(random) : random.pick(strangeTexts);
  return random.pick([
    `${key}=${text}`,
    `${key}=${text}`,
    `${key}=${text}`,
    `${key}:${text}`,
    key,
    `=${text}`,
    `${key}.=1`,
  ]);
}

/** The parts of a small valid experiment, as Jsonnet. */
const experimentParts: Readonly<Record<string, string>> = {
  name: "'fuzz'",
  description: "'what it is about'",
  base: 'BASE',
  with: "['lib/tiny.libsonnet']",
  axes: "{ lr: { lo: { optimizer+: { learning_rate: 1e-4 } }, hi: { optimizer+: { learning_rate: 1e-3 } } }, seed: { [s]: { seed: std.parseInt(s) } for s in ['1', '2', '3'] } }",
  design: "'product'",
  zip: "[['lr', 'seed']]",
  include: "[{ lr: 'lo' }]",
  exclude: "[{ lr: 'hi', seed: '1' }]",
  overrides: "[{ cell: { lr: 'lo' }, set: { seed: 9 } }]",
  share: "['seed']",
  baseline: "{ lr: 'lo' }",
};

const experimentValues: readonly Write[] = [
  ...values,
  ...failures,
  () => "'lr'",
  () => "['lr']",
  () => "[['lr', 'lr']]",
  () => "[['lr', 'nothing']]",
  () => "{ lr: 'mid' }",
  () => "{ lr: ['lo', 'lo'] }",
  () => '[{ cell: {}, sets: {} }]',
  () => "{ 'a b': { x: {} } }",
  () => '{ lr: {} }',
  () => '{ lr: { x: 3 } }',
  () => "{ lr: { x: { run_name: 'same' } } }",
  () => '{ lr: { __proto__: {}, constructor: {} } }',
];

export function wrongExperiment(base: string, random: Random): string {
  const optional = Object.keys(experimentParts).filter((key) => !['name', 'base', 'axes', 'with'].includes(key));
  const keys = ['name', 'base', 'with', 'axes', ...random.shuffled(optional).slice(0, random.integer(4))];
  const parts = keys.map((key) => [key, experimentParts[key].replace('BASE', base)]);
  for (let left = 1 + random.integer(2); left > 0; left--) {
    const part = random.pick(parts);
    const what = random.integer(4);
    if (what === 0) part[0] = misspelt(part[0], random);
    else if (what === 1) parts.splice(parts.indexOf(part), 1);
    else part[1] = random.pick(experimentValues)(random);
    if (parts.length === 0) break;
  }
  return `{\n${parts.map(([key, value]) => `  ${JSON.stringify(key)}: ${value},`).join('\n')}\n}\n`;
}

const flags = [
  'with',
  'set',
  'only',
  'json',
  'exp-dir',
  'deep',
  'origin',
  'experiment',
  'max-parallel',
  'fresh',
  'wiht',
  'o',
  'h0',
];

/** Flags that do not exist, lack their value, or have an odd one. */
export function wrongFlags(random: Random): string[] {
  const flag = (): string[] => {
    const name = `${random.pick(['--', '--', '--', '-', '--no-'])}${random.pick(flags)}`;
    const value = random.pick<string>([
      ...strangeTexts.filter((text) => !text.includes('\u0000')),
      'two',
      '=',
      'a=b=c',
      '{"a":1}',
      'configs',
    ]);
    return random.pick([[name], [name, value], [`${name}=${value}`], [name, name]]);
  };
  return Array.from({ length: 1 + random.integer(2) }, flag).flat();
}
