/** The dashboard can stop and start runs, so it calls launch. */
module.exports = {
  below: ['launch', 'recipes', 'train', 'run', 'config', 'rewards', 'models', 'data', 'compute', 'core'],
  rules: [
    {
      name: 'page-runs-in-browsers',
      severity: 'error',
      from: { path: '^src/web/page/' },
      to: {
        pathNot:
          '^src/(web/(page/|(wire|panels)\\.ts$)|core/(curves|errors|estimate)\\.ts$|run/metric_names\\.ts$)|node_modules/(preact|uplot)/',
      },
    },
  ],
};
