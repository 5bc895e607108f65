/**
 * Imports point one way. Each folder lists what it may import besides itself and `core`;
 * whatever is not listed is an error, so that a new folder has to be placed on the map first.
 */
const mayImport = {
  core: [],
  graph: [],
  nets: ['graph'],
  data: [],
  rewards: ['engines', 'graph', 'nets', 'data'],
  tiny: ['data', 'rewards'],
  engines: ['nets', 'graph'],
  environments: ['engines', 'nets', 'graph', 'data'],
  policies: ['engines', 'nets', 'graph', 'data'],
  tasks: ['policies', 'environments', 'rewards', 'data', 'engines', 'nets', 'tiny', 'config'],
  config: ['rewards'],
  run: ['config', 'rewards'],
  track: ['run', 'config'],
  train: ['tasks', 'policies', 'environments', 'rewards', 'data', 'engines', 'run', 'track', 'config', 'graph', 'nets'],
  launch: ['run', 'config', 'train', 'track', 'rewards', 'tiny', 'tasks', 'engines'],
  cli: ['launch', 'run', 'config', 'train', 'track', 'rewards', 'tiny', 'data', 'tasks', 'engines'],
};

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'one-door-to-onnxruntime',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/engines/onnx/' },
      to: { path: 'onnxruntime-node' },
    },
    {
      // The config reads a term's schema, so a term imports what is heavy only when it is made.
      name: 'terms-stay-light',
      severity: 'error',
      from: { path: '^src/rewards/terms/' },
      to: {
        path: 'node_modules/(onnxruntime-node|sharp|openai|undici|tesseract\\.js)/|^src/(engines|rewards/(ocr|clip))/',
        dependencyTypesNot: ['dynamic-import', 'type-only'],
      },
    },
    { name: 'src-knows-no-tests', severity: 'error', from: { path: '^src/' }, to: { path: '^(test|scripts)/' } },
    ...Object.entries(mayImport).map(([folder, allowed]) => ({
      name: `direction-${folder}`,
      severity: 'error',
      from: { path: `^src/${folder}/` },
      to: { path: '^src/', pathNot: `^src/(${[folder, 'core', ...allowed].join('|')})/` },
    })),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
  },
};
