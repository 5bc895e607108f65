/** CLIP and aesthetic terms run networks. */
module.exports = {
  below: ['models', 'data', 'compute', 'core'],
  rules: [
    {
      // Loading a config reads a term's schema, so a term imports what is heavy only when it is made.
      name: 'terms-stay-light',
      severity: 'error',
      from: { path: '^src/rewards/terms/[^/]+\\.ts$' },
      to: {
        path: 'node_modules/(onnxruntime-node|sharp|openai|undici|tesseract\\.js)/|^src/(compute/onnx|rewards/terms/(ocr|clip))/',
        dependencyTypesNot: ['dynamic-import', 'type-only'],
      },
    },
  ],
};
