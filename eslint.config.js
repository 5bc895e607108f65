import { readdirSync } from 'node:fs';
import tseslint from 'typescript-eslint';

/** A folder of src/recipes is a recipe. */
const recipe = `/^(${readdirSync('src/recipes', { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .join('|')})$/`;
const task = "MemberExpression[property.name='task']";
const message = 'Only a recipe knows itself: ask recipeOf(settings) (src/recipes/recipe.ts) for what you need to know.';

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'runs/', 'data/', '*.cjs', '**/*.js'] },
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
    ignores: ['src/recipes/**', 'src/nets/**'],
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
);
