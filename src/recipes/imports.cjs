/** A recipe wires tasks and policies. */
module.exports = {
  below: ['train', 'run', 'config', 'rewards', 'models', 'data', 'compute', 'core'],
  rules: [
    {
      // Loading a config reads a recipe's settings, which must not load what computes.
      name: 'settings-stay-light',
      severity: 'error',
      from: { path: '^src/(recipes/(settings|[^/]+/settings)\\.ts|config/)' },
      to: {
        path: '^src/(compute|train/(environments|policies))/|node_modules/(onnxruntime-node|sharp|openai|undici|tesseract\\.js)/',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'recipes-by-their-tables',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(recipes/|cli/enhance\\.ts)' },
      to: { path: '^src/recipes/(?!shared/)[^/]+/' },
    },
  ],
};
