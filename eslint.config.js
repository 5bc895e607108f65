import { readdirSync } from 'node:fs';
import tseslint from 'typescript-eslint';

/** A folder of src/recipes is a recipe. */
const recipe = `/^(${readdirSync('src/recipes', { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && entry.name !== 'shared')
  .map(({ name }) => name)
  .join('|')})$/`;
const task = "MemberExpression[property.name='task']";
const message = 'Only a recipe knows itself: ask recipeOf(settings) (src/recipes/recipe.ts) for what you need to know.';

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'runs/', 'data/', '**/*.cjs', '**/*.js', '**/*.mjs', '!eslint.config.js'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      curly: ['error', 'multi-line'],
      eqeqeq: 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      // Interfaces are asynchronous; an implementation that has nothing to wait for still has to match them.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
    },
  },
  {
    files: ['src/**'],
    // Networks see no settings of a run, and one of their parts is called as a recipe is.
    ignores: ['src/recipes/**', 'src/compute/nets/**'],
    rules: {
      'no-restricted-syntax': [
        'error',
        ...[
          `Literal[value=${recipe}]`,
          `TemplateElement[value.raw=${recipe}]`,
          `Property > Identifier.key[name=${recipe}]`,
          `BinaryExpression[operator=/^[!=]==?$/] > ${task}`,
          `SwitchStatement > ${task}.discriminant`,
          // A table by task would be a switch in other clothes.
          `MemberExpression[computed=true] > ${task}.property`,
        ].map((selector) => ({ selector, message })),
      ],
    },
  },
  {
    // Readers of runs: what lies in a run's folder may be a pipe, a device or a bomb.
    files: ['src/{run,web,train/rescore}/**'],
    ignores: [
      // These open files to write them, or read what is no run's: /proc, the user's own settings, what this process wrote.
      'src/run/{journal,logs,checkpoints}.ts',
      'src/web/{actions,page_files}.ts',
      'src/run/track/system.ts',
      'src/run/track/wandb/environment.ts',
    ],
    rules: {
      'no-restricted-imports': [
        'error',
        ...[
          ['node:fs', ['readFileSync', 'openSync', 'createReadStream', 'readFile', 'promises']],
          ['node:zlib', ['gunzipSync', 'unzipSync', 'inflateSync', 'brotliDecompressSync']],
        ].map(([name, importNames]) => ({
          name,
          importNames,
          message:
            'Files of a run are read through core/plain_file.ts: plain files alone, without waiting, up to a size.',
        })),
        ...['node:fs/promises', 'fs', 'fs/promises'],
      ],
    },
  },
  {
    // Those share a process: a module that another file has loaded is not replaced any more.
    files: ['test/**/*.test.ts'],
    ignores: ['test/**/*.mocks.test.ts', 'test/**/*.slow.test.ts', 'test/e2e/**'],
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector: "CallExpression[callee.object.name='vi'][callee.property.name=/^(do)?[mM]ock$/]",
          message: 'A file that replaces a module is named *.mocks.test.ts, and gets modules of its own.',
        },
      ],
    },
  },
  // This file is in no project of TypeScript's.
  { files: ['eslint.config.js'], ...tseslint.configs.disableTypeChecked },
);
