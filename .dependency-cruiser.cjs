/** The light files of recipes, which every program that reads a config loads: settings, their rules and estimates of memory. */
const light = '((recipe|settings|shared/memory)\\.ts|shared/rules/|([^/]+|shared/[^/]+)/(rules|settings)\\.ts)';

/**
 * Imports point downwards: each line may import from those below it, and from itself. A file that is on no line is an error, so that
 * a folder has to be placed on the map first.
 */
const layers = [
  ['cli', '^src/cli/'],
  ['web', '^src/web/'],
  ['launch', '^src/launch/'],
  // A recipe's other files wire its parts; its settings stay light, because every program that reads a config loads them.
  ['recipes', `^src/recipes/(?!${light})`],
  ['rescore', '^src/rescore/'],
  ['train', '^src/train/'],
  ['scoring', '^src/scoring/'],
  ['recipe settings', `^src/recipes/${light}`],
  ['track', '^src/track/'],
  ['run', '^src/run/'],
  ['policies', '^src/policies/'],
  ['environments', '^src/environments/'],
  ['tiny judge', '^src/tiny/judge/'],
  ['rewards', '^src/rewards/'],
  ['engines', '^src/engines/(?!onnx/)'],
  ['tiny world', '^src/tiny/world/(?!settings\\.ts)'],
  ['data', '^src/data/'],
  ['models', '^src/models/'],
  ['group', '^src/group/'],
  ['config', '^src/config/'],
  ['schema', '^src/schema/(?!(mark|walk|paths)\\.ts)'],
  ['tiny settings', '^src/tiny/world/settings\\.ts'],
  ['schema tools', '^src/schema/(mark|walk|paths)\\.ts'],
  ['balance', '^src/balance/'],
  ['http', '^src/http/'],
  ['onnx', '^src/engines/onnx/'],
  ['nets', '^src/nets/'],
  ['graph', '^src/graph/'],
  ['core', '^src/core/'],
];

/** What config reads of a recipe must not load what computes. */
const heavy =
  '^src/(engines|nets|graph|environments|policies)/|node_modules/(onnxruntime-node|sharp|openai|undici|tesseract\\.js)/';

module.exports = {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'on-the-map',
      severity: 'error',
      from: { path: '^src/', pathNot: layers.map(([, path]) => path) },
      to: {},
    },
    {
      name: 'one-door-to-onnxruntime',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/engines/onnx/' },
      to: { path: 'onnxruntime-node' },
    },
    {
      // Graphs, networks and sessions are usable without the rest of the program.
      name: 'computing-stands-alone',
      severity: 'error',
      from: { path: '^src/(engines/onnx|nets|graph)/' },
      to: {
        path: '^src/',
        pathNot: '^src/(engines/onnx|nets|graph)/|^src/core/(errors|random|half|finite|safetensors)\\.ts$',
      },
    },
    {
      name: 'settings-stay-light',
      severity: 'error',
      from: { path: `^src/(recipes/${light}|config/|schema/)` },
      to: { path: heavy, dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'recipes-by-their-tables',
      severity: 'error',
      // The verb `enhance` is one recipe's.
      from: { path: '^src/', pathNot: '^src/(recipes/|cli/enhance\\.ts)' },
      to: { path: '^src/recipes/(?!shared/)[^/]+/' },
    },
    {
      // The config reads a term's schema, so a term imports what is heavy only when it is made.
      name: 'terms-stay-light',
      severity: 'error',
      from: { path: '^src/rewards/terms/[^/]+\\.ts$' },
      to: {
        path: 'node_modules/(onnxruntime-node|sharp|openai|undici|tesseract\\.js)/|^src/(engines|rewards/terms/(ocr|clip))/',
        dependencyTypesNot: ['dynamic-import', 'type-only'],
      },
    },
    {
      name: 'page-runs-in-browsers',
      severity: 'error',
      from: { path: '^src/web/page/' },
      to: {
        pathNot:
          '^src/(web/(page/|(wire|panels)\\.ts$)|core/(curves|errors|estimate)\\.ts$)|node_modules/(preact|uplot)/',
      },
    },
    { name: 'src-knows-no-tests', severity: 'error', from: { path: '^src/' }, to: { path: '^(test|scripts)/' } },
    ...layers.map(([name, path], at) => ({
      name: `downwards-from-${name.replace(' ', '-')}`,
      severity: 'error',
      from: { path },
      to: { path: '^src/', pathNot: layers.slice(at).map(([, allowed]) => allowed) },
    })),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
  },
};
