/** The part of a model card that says how to load the model. */
import { recipeNamed } from '../../config/recipes.js';
import type { CardContent } from './content.js';
import { loaderOf } from './library.js';

/** Lines of Markdown. */
export function usageSection(content: CardContent): string[] {
  const program = pythonUsage(content);
  const from = content.place === 'this folder' ? ['From within this folder:', ''] : [];
  const block = program === null ? [] : [...from, '```python', ...program, '```', ''];
  return ['## Use', '', ...block, ...configUsage(content)];
}

/** Lines of a program; null if no other program than editrl loads the model. */
function pythonUsage(content: CardContent): string[] | null {
  const { origin, place, adapter } = content;
  const { model } = loaderOf(content);
  if (model === null) return null;
  const here =
    place === 'this folder'
      ? JSON.stringify('.')
      : JSON.stringify(place.repository) +
        (place.revision === null ? '' : `, revision=${JSON.stringify(place.revision)}`);
  const imports = `from ${model.of} import ${[model.name, ...inputReaders(model)].join(', ')}`;
  const inputs = inputReaders(model).map((name) => `${VARIABLES[name]} = ${name}.from_pretrained(${here})`);
  if (adapter === null) return [imports, '', `model = ${model.name}.from_pretrained(${here})`, ...inputs];
  const base = baseOf(origin);
  return [
    'from peft import PeftModel',
    imports,
    '',
    ...base.says,
    `base = ${model.name}.from_pretrained(${JSON.stringify(base.name)})`,
    `model = PeftModel.from_pretrained(base, ${here})`,
    ...inputs,
  ];
}

const VARIABLES = { AutoTokenizer: 'tokenizer', AutoProcessor: 'processor' } as const;

/** What reads a model's inputs. */
function inputReaders({ of, name }: { readonly of: string; readonly name: string }): (keyof typeof VARIABLES)[] {
  if (of === 'diffusers') return [];
  return [name === 'AutoModelForImageTextToText' ? 'AutoProcessor' : 'AutoTokenizer'];
}

/** The name that the base is loaded by, and a comment where that is not a name of the Hub. */
function baseOf({ adapterBase, isAdapterOnHub, start }: CardContent['origin']): {
  readonly name: string;
  readonly says: readonly string[];
} {
  if (isAdapterOnHub && adapterBase !== null) return { name: adapterBase, says: [] };
  const run = typeof start === 'object' && start !== null && 'run' in start ? start.run : null;
  if (run === null && adapterBase !== null) {
    return {
      name: adapterBase,
      says: ['# The folder of the base on the machine that trained it: name your copy of it.'],
    };
  }
  const made = run === null ? '' : `: \`editrl export ${run} --format merged --out BASE\` makes it`;
  return { name: 'BASE', says: [`# BASE is the folder of the model that the adapter was trained on${made}.`] };
}

function configUsage({ record, place }: CardContent): string[] {
  const recipe = recipeNamed(record.settings['task']);
  if (recipe?.trainer !== 'this program') return [];
  const { key, of } = recipe.usedAt;
  const reference =
    place === 'this folder'
      ? 'the path of this folder'
      : `\`{ hub: '${place.repository}', revision: '${place.revision ?? 'main'}' }\``;
  return [`In editrl, a config of the recipe \`${of}\` names it at \`${key}\`: ${reference}.`];
}
