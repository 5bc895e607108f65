// The quickstart with a reward of your own beside the judge.
(import 'quickstart.jsonnet') + {
  reward+: {
    terms: [
      { name: 'viescore', weight: 0.8 },
      { name: 'module', weight: 0.2, module: '../rewards/small_change.mjs', settings: { limit: 0.5 } },
    ],
  },
}
