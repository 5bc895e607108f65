/**
 * The rooms of `src`, from top to bottom. `src/<room>/imports.cjs` lists the rooms that a room may import (`below`), single files beyond these
 * (`also`) and further rules. A file outside the rooms is an error.
 */
const ROOMS = [
  'cli',
  'web',
  'launch',
  'recipes',
  'train',
  'run',
  'config',
  'rewards',
  'models',
  'data',
  'compute',
  'core',
];

const rooms = ROOMS.map((name, at) => {
  const { below, also = null, rules = [] } = require(`./src/${name}/imports.cjs`);
  const above = below.filter((other) => ROOMS.indexOf(other) <= at);
  if (above.length > 0) throw new Error(`src/${name}/imports.cjs: ${above.join(', ')} not below ${name}`);
  const allowed = [`^src/(${[name, ...below].join('|')})/`, ...(also === null ? [] : [also])];
  return { name, allowed, rules };
});

module.exports = {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    { name: 'in-a-room', severity: 'error', from: { path: '^src/', pathNot: `^src/(${ROOMS.join('|')})/` }, to: {} },
    { name: 'src-knows-no-tests', severity: 'error', from: { path: '^src/' }, to: { path: '^(test|scripts)/' } },
    ...rooms.map(({ name, allowed }) => ({
      name: `${name}-imports-rooms-below`,
      severity: 'error',
      from: { path: `^src/${name}/` },
      to: { path: '^src/', pathNot: allowed },
    })),
    ...rooms.flatMap(({ rules }) => rules),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
  },
};
